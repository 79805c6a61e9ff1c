"""Parity of users' own models: two builders, one batch, one verdict.

The parent process describes the job, starts one worker per framework and reads their results; a
worker runs its model and writes a trace. The entry points are `compare` and `compare_traces`.
"""
