"""A run from its plan to its record: ranks, checkpoints, jobs."""
