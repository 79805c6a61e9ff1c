"""Hypotheses about the cause of a difference between runs, with one module per phase."""
