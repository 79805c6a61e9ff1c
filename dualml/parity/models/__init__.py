"""Parity of users' own models: two builders, one batch, one verdict.

The parent describes the job, starts one worker for each framework and reads what they left; a
worker runs its model and leaves a trace. `compare` and `compare_traces` are the two entrances.
"""
