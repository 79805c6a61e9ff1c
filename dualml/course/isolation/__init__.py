"""Isolation of students' code: namespaces, a root file system of its own, a system-call filter,
hard limits.

`server` is a process that has imported a framework and nothing that an exercise asks for. For each
check it forks a `warden`, which stays outside of the isolation ("walls"), mediates between the
ranks and talks to the judge. The ranks, in which students' code runs, are confined by `root`,
`filters` and `limits`. `detect` finds out which of these the machine supports, and `client` is the
judge's end.
"""
