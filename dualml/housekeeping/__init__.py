"""Runs that have been made: which there are, and which may go."""
