"""Runs that are queued: on this machine, or in Slurm; listed, followed, stopped, taken up again.

The queue of this machine is a folder and one process that exists while there is something in it:
a broker (Redis for rq, Celery) or a service of the system (systemd, pueue) would have to be set up
by whoever only wants two runs to follow one another.
"""
