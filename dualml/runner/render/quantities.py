"""Times, rates and sizes, converted from the forms of options to those of engines."""

from __future__ import annotations

import re

from dualml.common.errors import UserError
from dualml.planning.cost import units
from dualml.runner.jobs.sbatch import parse_time_limit as parse_time_limit

#: A quantity of Kubernetes: a number with a power of ten, of 1024, or an exponent.
QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")
#: A size in Compose's format.
BYTES = re.compile(r"\d+[bkmg]?")
SUFFIXES = {f"{letter}i": 1024**n for n, letter in enumerate("KMGT", 1)}
SUFFIXES |= {letter: 1000**n for n, letter in enumerate("kMGT", 1)}
#: Bits per second: faster than any network card, and small enough not to overflow ``tc``'s bucket.
MAX_BITS_PER_S = 10**12


def parse_rate(text: str) -> int:
    """Convert a network rate such as ``100Mbit`` or ``10MB/s`` to bits per second.

    Raises:
        UserError: the text has another form, or the rate is not from 1 Kbit/s to 1 Tbit/s.
    """
    value = 8 * units.parse_rate(text if text.endswith("/s") else f"{text}/s", "--rate")
    if not 1000 <= value <= MAX_BITS_PER_S:
        raise UserError(f"--rate {text}: use one from 1Kbit/s to 1Tbit/s")
    return round(value)


def format_quantity(value: int) -> str:
    """Return the shortest Kubernetes quantity that equals a number from 0 exactly.

    >>> format_quantity(4 * 10**9), format_quantity(2**30), format_quantity(5)
    ('4G', '1Gi', '5')
    """
    forms = [f"{value // n}{suffix}" for suffix, n in SUFFIXES.items() if value % n == 0 and value]
    return min([str(value), *forms], key=len)
