"""The first message of a rank on another machine, and the check whether it can take part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dualml.errors import plain
from dualml.messages import Header, field_of, text_of

#: Largest difference of two clocks, in seconds.
CLOCK_S = 60.0
#: Characters of a machine's name and of a version, and number of packages compared, at most.
LONGEST_HOST, LONGEST_VERSION, MOST_VERSIONS = 255, 100, 100


@dataclass(frozen=True)
class Greeting:
    """Identity of a rank that connects.

    Attributes:
        rank, size: as it was started.
        host: name of its machine.
        worker: whether it is the process that computes, rather than the one that supervises it.
        same: versions by name, to compare with rank 0's.
        clock: seconds since 1970.
    """

    rank: int
    size: int
    host: str
    worker: bool
    same: Mapping[str, str]
    clock: float

    @classmethod
    def parse(cls, header: Header) -> Greeting:
        """Make a greeting from a message header.

        Raises:
            ValueError: a field is missing, too long or of another type.
        """
        same: Header = field_of(header, "same", dict)
        if len(same) > MOST_VERSIONS:
            raise ValueError(f"same has {len(same):,} versions; at most {MOST_VERSIONS} are read")
        return cls(
            field_of(header, "rank", int),
            field_of(header, "size", int),
            plain(text_of(header, "host", LONGEST_HOST)),
            field_of(header, "worker", bool),
            {plain(name): plain(text_of(same, name, LONGEST_VERSION)) for name in same},
            field_of(header, "clock", float),
        )

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}"


def differing(
    here: Mapping[str, str], there: Mapping[str, str], ahead: float, slack: float = 0.0
) -> str | None:
    """Return why another machine cannot take part, because of a version or its clock; None if it
    can.

    Args:
        here, there: versions by name; all that are ``here`` must be the same there.
        ahead: seconds by which its clock is ahead of this one.
        slack: uncertainty of ``ahead`` in seconds.
    """
    for what, version in here.items():
        if (other := there.get(what)) != version:
            received = f"has {what} {other}" if other else f"has no {what}"
            return f"{received}, rank 0 has {version}: install the same"
    if abs(ahead) > CLOCK_S + slack:
        way = "ahead of" if ahead > 0 else "behind"
        return f"has a clock {abs(ahead):.0f} s {way} rank 0's: set the clocks (NTP)"
    return None
