"""Patches of a user's source that are proved: the inverse of a cause in the port's own line.

A cause says which change makes the original behave like the port. Its inverse is written into the
port's text at the positions of its syntax tree, the port is run again from a temporary copy, and
the comparison decides whether the patch is right.
"""
