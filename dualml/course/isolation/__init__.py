"""Walls around students' code: namespaces, a root of its own, system-call filter, hard limits.

`server` is a process that has imported a framework and nothing that an exercise asks for. For each
check it forks a `warden`, which stays outside of the walls, mediates between the ranks and talks to
the judge; the ranks, in which students' code runs, are behind `root`, `filters` and `limits`.
`detect` says which of this the machine allows, `client` is the judge's end.
"""
