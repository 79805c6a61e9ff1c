"""Queued runs, on this machine or in Slurm: list, follow, stop and resume them.

The queue of this machine is a folder and one process that exists while the queue is not empty. A
broker (Redis for rq, Celery) or a service of the system (systemd, pueue) would have to be set up by
a user who only wants two runs to follow one another.
"""
