"""MindSpore implementation of `dualml.parity`."""
