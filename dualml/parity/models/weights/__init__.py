"""Weights of a comparison from files, the map of their names, and the way back into a file."""
