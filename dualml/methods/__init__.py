"""Ways to train one model on one plan: a framework's own, and those of engines built on it.

A method is a file of a backend's ``methods/``: the whole loop of one update, written as its users
write it, so that its difference from the file ``single`` is what the method costs in code.
"""

from dualml.methods.known import METHODS, MethodInfo, method

__all__ = ["METHODS", "MethodInfo", "method"]
