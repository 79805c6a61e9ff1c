"""Grades: submissions judged with secret draws, points by a rubric, a page for each student."""
