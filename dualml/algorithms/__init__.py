"""The parts of one training step: update rules, models, low precision, collectives."""
