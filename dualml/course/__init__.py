"""The course: workspaces in which students write the algorithms, and the judge of their code.

A student's file runs in a process of its own (`student`), which receives inputs and returns
results. It never sees the expected results: the reference rule is computed by the judge (`judge`),
in float64, with values drawn anew for every check. A wrong answer is compared with those of mutated
rules, each with one typical mistake; the mistake that reproduces the student's numbers is reported.
"""
