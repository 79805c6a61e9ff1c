"""The option ``--local-rank=N`` that some launchers put before a script's own words.

``torch.distributed.launch`` without ``--use-env`` and ``deepspeed`` without ``--no_local_rank`` do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

OPTION = re.compile(r"--local[-_]rank=(\d{1,9})")


def without_local_rank(words: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Drop a launcher's ``--local-rank=N`` from the front of a command line.

    The same launchers set ``LOCAL_RANK``, which is what ranks read; an option without the variable,
    or with another number, is left where it is, for the command line to refuse.

    Example:
        >>> without_local_rank(["--local-rank=1", "run"], {"LOCAL_RANK": "1"})
        ['run']
        >>> without_local_rank(["--local-rank=1", "run"], {})
        ['--local-rank=1', 'run']
    """
    match = OPTION.fullmatch(words[0]) if words else None
    if match is None or environ.get("LOCAL_RANK") != match[1]:
        return list(words)
    return list(words[1:])
