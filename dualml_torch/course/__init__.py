"""The course's exercises in PyTorch, solved, and how a student's solution is run."""
