"""Times, rates and sizes, as options say them and as engines want them."""

from __future__ import annotations

import re

from dualml.cost import units
from dualml.errors import UserError
from dualml.jobs.sbatch import seconds as seconds

#: A quantity of Kubernetes: a number with a power of ten, of 1024, or an exponent.
QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")
#: A size of Compose.
BYTES = re.compile(r"\d+[bkmg]?")
SUFFIXES = {f"{letter}i": 1024**n for n, letter in enumerate("KMGT", 1)}
SUFFIXES |= {letter: 1000**n for n, letter in enumerate("kMGT", 1)}
#: Bits per second: more than a network card has, and less than would overflow the bucket of ``tc``.
MOST_RATE = 10**12


def bits(text: str) -> int:
    """``100Mbit`` or ``10MB/s``: bits per second.

    Raises:
        UserError: anything else, or too little or too much for a network.
    """
    value = 8 * units.rate(text if text.endswith("/s") else f"{text}/s", "--rate")
    if not 1000 <= value <= MOST_RATE:
        raise UserError(f"--rate {text}: use one from 1Kbit/s to 1Tbit/s")
    return round(value)


def quantity(value: int) -> str:
    """The shortest way to say a number exactly.

    >>> quantity(4 * 10**9), quantity(2**30), quantity(5)
    ('4G', '1Gi', '5')
    """
    forms = [f"{value // n}{suffix}" for suffix, n in SUFFIXES.items() if value % n == 0 and value]
    return min([str(value), *forms], key=len)
