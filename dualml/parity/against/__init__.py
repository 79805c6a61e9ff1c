"""Two runs held against one another: before and after a change of code, settings, layout, machine.

The judge is the one that compares backends inside a run. What the plan freezes for a trial (data,
initial weights, samples) must be the same on both sides; every other setting may differ, is named,
and is what the verdict is about. Speed and memory are reported; they decide where a limit is given.
"""

from dualml.parity.against.outcome import Against
from dualml.parity.against.runs import compare_runs

__all__ = ["Against", "compare_runs"]
