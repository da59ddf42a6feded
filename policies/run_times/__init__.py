"""Predictors of the workers' run times, for the policy `psplatform.policies.cutoff`: one idea per file."""
