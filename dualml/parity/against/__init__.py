"""Compare two runs: before and after a change of code, settings, layout or machine.

The same judge also compares backends within one run. What the plan freezes for a trial (data,
initial weights, samples) must be the same on both sides. Every other setting may differ and is
reported with the verdict. Time and memory are reported, and count as failures only where a limit is
given.
"""

from dualml.common.former_members import former_names
from dualml.parity.against.outcome import RunComparison
from dualml.parity.against.runs import compare_runs

__all__ = ["RunComparison", "compare_runs"]

__getattr__ = former_names(__name__, {"Against": "RunComparison"})
