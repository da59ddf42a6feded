"""From a run's event log to the rows that pages show.

===============  ==================================================================================
``reading``      `Reading`: all models of one store, kept up to date with its log
``batches``      consecutive records by kind, and the run's time over all of its lives
``envelopes``    curves that are thinned without losing extremes
``counts``       events per stretch of time
``convergence``  losses, accuracies and updates per second
``delays``       staleness of what was applied
``workers``      where each worker's time went, and who is a straggler
``lanes``        what each worker did when
``stretches``    where in a log the gradients of any stretch of time are
``drops``        gradients that were not applied
``divergence``   how far replicas lag behind their servers
``decisions``    what the policy decided, and why
``failures``     what was lost, and how soon it was replaced
``expected``     what simulations say to expect, from what they print
===============  ==================================================================================

Every model of a log takes records in batches, in amortised constant time for each, and stays bounded however long the
run; what it returns are frozen rows that may be read while it goes on.  Nothing here knows Streamlit or plotly.
"""
