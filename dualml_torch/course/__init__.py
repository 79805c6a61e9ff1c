"""The course's exercises in PyTorch with solutions, and the code that runs a student's solution."""
