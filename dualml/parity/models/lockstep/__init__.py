"""Comparison of two models block by block, for models of which no step fits into the memory."""
