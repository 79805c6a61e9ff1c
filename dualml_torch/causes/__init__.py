"""A user's PyTorch model with alterations: the side that is altered to test a cause."""
