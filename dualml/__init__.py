"""dualml: one distributed-ML experiment, two frameworks, one honest report."""

__version__ = "0.1.0"
