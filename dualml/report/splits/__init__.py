"""Split models: one model on several ranks, with plans, timelines, results and cost thresholds."""
