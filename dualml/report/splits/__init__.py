"""One model on several ranks: its plans, its results in chapters, and when it pays."""
