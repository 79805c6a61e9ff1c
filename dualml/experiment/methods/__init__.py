"""Training methods: different ways to train one model on one plan, by a framework itself or by
engines built on it.

A method is a file of a backend's ``methods/`` with the complete loop of one update as its users
write it, so that the difference from the file ``single`` shows what the method costs in code.
"""

from dualml.experiment.methods.registry import METHODS, MethodInfo, find_method

__all__ = ["METHODS", "MethodInfo", "find_method"]
