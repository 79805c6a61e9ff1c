"""The course's exercises in MindSpore, solved, and how a student's solution is run."""
