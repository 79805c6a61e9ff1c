"""Processes with an owner: started together, watched, and ended together."""
