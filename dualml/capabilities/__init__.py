"""What the communicators can do here: every primitive run live, its result compared with NumPy's.

`Communicator.how` says how a primitive is executed; it is believed only where the result is right
and the traffic fits what was said.
"""

from dualml.capabilities.columns import Column, Entry, examine

__all__ = ["Column", "Entry", "examine"]
