"""Experiment files: found, read, overridden, validated, and frozen into a plan."""
