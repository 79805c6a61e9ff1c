"""Kinds of isolation that a machine may support."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Literal

from dualml.common.errors import UserError

Kind = Literal["namespaces", "bubblewrap", "none"]
#: Variable with the kind of isolation, or ``auto``, the default: namespaces, else bubblewrap, else
#: none.
SWITCH = "DUALML_ISOLATION"


@dataclass(frozen=True)
class Isolation:
    """The isolation of students' code.

    Attributes:
        kind: ``namespaces``: dualml makes namespaces by system calls, which takes milliseconds;
            ``bubblewrap``: that program makes them, where the system allows nobody else to, and the
            framework starts anew for every check; or ``none``.
        why: why there is no isolation.
    """

    kind: Kind
    why: str = ""

    @property
    def walls(self) -> bool:
        """Whether there is any isolation."""
        return self.kind != "none"


WALLS = Isolation("namespaces")


def candidates() -> list[Isolation]:
    """Return the kinds of isolation to try, the best first, or only the one that `SWITCH` names; on
    other systems than Linux only ``none``.

    Raises:
        UserError: on Linux, the variable has another value.
    """
    wanted = os.environ.get(SWITCH) or "auto"
    if wanted == "none":
        return [Isolation("none", f"{SWITCH}=none")]
    if sys.platform != "linux":
        return [Isolation("none", f"{sys.platform} has no namespaces")]
    kinds: dict[str, list[Isolation]] = {
        "namespaces": [WALLS],
        "bubblewrap": [Isolation("bubblewrap")],
        "auto": [WALLS, Isolation("bubblewrap")],
    }
    if wanted not in kinds:
        raise UserError(
            f"{SWITCH} must be auto, none, {' or '.join(list(kinds)[:2])}; received {wanted!r}"
        )
    return kinds[wanted]
