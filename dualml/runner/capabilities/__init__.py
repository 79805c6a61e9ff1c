"""Capabilities of the communicators, probed: every primitive is run, and its result compared with
NumPy's.

`Communicator.implementation_of` says how a primitive is implemented; the answer is accepted only
where the result is correct and the traffic is consistent with it.
"""

from dualml.runner.capabilities.columns import CapabilityColumn, ProbeResult, probe_backends

__all__ = ["CapabilityColumn", "ProbeResult", "probe_backends"]
