"""Forms generated from the declarations of parameters."""
