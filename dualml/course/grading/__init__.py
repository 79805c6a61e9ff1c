"""Grading: submissions judged with secret random draws, points by a rubric, and a page per
student."""
