"""Helpers that every package may use: errors, files, messages, registries, the machine."""
