"""Dumps of other tools, read as traces: msprobe's and TroubleShooter's.

They hold outputs of modules or calls, but not the rounding that a Recorder measures, so the
tolerance is the rule of thumb for traces without draws. Nothing in a dump is unpickled.
"""
