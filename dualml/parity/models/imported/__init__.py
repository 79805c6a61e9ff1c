"""Dumps of other tools as traces: msprobe's and TroubleShooter's.

They hold what modules or calls gave, without the rounding that a Recorder measures: the tolerance
is the rule of thumb of traces without draws. Nothing in a dump is unpickled.
"""
