"""The course: workspaces in which students write the algorithms, and what judges them.

A student's file runs in a process of its own (`student`), which is given inputs and returns what
it computed. It never sees what is expected: the rule is computed here (`judge`), in float64, with
values drawn anew for every check. A wrong answer is compared with those of *altered* rules, each
with one typical mistake; the one that gives the student's numbers is named.
"""
