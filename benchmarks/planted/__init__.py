"""Differences planted on purpose, one at a time, into one backend, to test whether the finder finds
them."""
