"""The first message of a rank on another machine, and the check whether it can take part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dualml.common.bounded_io import Header, get_field, get_text
from dualml.common.errors import escape_unprintable

#: Largest difference of two clocks, in seconds.
CLOCK_S = 60.0
#: Characters of a machine's name and of a version, and number of packages compared, at most.
MAX_HOST_CHARS, MAX_VERSION_CHARS, MAX_PACKAGES = 255, 100, 100


@dataclass(frozen=True)
class Greeting:
    """Identity of a rank that connects.

    Attributes:
        rank, size: as it was started.
        host: name of its machine.
        worker: whether it is the process that computes, rather than the one that supervises it.
        versions: by name, to compare with rank 0's (``same`` in the message).
        clock: seconds since 1970.
    """

    rank: int
    size: int
    host: str
    worker: bool
    versions: Mapping[str, str]
    clock: float

    @classmethod
    def parse(cls, header: Header) -> Greeting:
        """Make a greeting from a message header.

        Raises:
            ValueError: a field is missing, too long or of another type.
        """
        same: Header = get_field(header, "same", dict)
        if len(same) > MAX_PACKAGES:
            raise ValueError(f"same has {len(same):,} versions; at most {MAX_PACKAGES} are read")
        return cls(
            get_field(header, "rank", int),
            get_field(header, "size", int),
            escape_unprintable(get_text(header, "host", MAX_HOST_CHARS)),
            get_field(header, "worker", bool),
            {
                escape_unprintable(name): escape_unprintable(
                    get_text(same, name, MAX_VERSION_CHARS)
                )
                for name in same
            },
            get_field(header, "clock", float),
        )

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}"


def mismatch_reason(
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
