"""Search for the cause of a difference between two models by testing mutations of one of them."""
