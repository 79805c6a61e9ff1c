"""A user's PyTorch model with mutations: the side that is changed to test a cause."""
