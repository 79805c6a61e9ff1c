"""Causes of a difference between two models: alterations that are tested, never guessed."""
