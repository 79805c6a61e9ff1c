"""Predictions without a run: communication cost, memory, and what fits on given devices."""
