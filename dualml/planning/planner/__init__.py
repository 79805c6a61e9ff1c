"""Planner: bytes and seconds of the parallel layouts of a language model on many devices, by
formulas.

`shape` describes a model, `cluster` the devices, `layouts` the choices; `memory` and `seconds`
price many layouts at once, `search` ranks them; `published` compares them with published
runs.
"""
