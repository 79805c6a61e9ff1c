"""Traces of several ranks: record each rank's part, put the parts together, and explain what
differs from a run in one process.

A rank records what it has itself: its shard of a parameter, its part of the batch. The parts are
put together by NumPy alone, so that traces of any framework and of any machine can be gathered.
"""
