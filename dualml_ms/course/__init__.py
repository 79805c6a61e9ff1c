"""The course's exercises in MindSpore with solutions, and the code that runs a student's
solution."""
