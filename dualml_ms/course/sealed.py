"""Takes away what MindSpore has compiled of the optimizers that students write."""

from __future__ import annotations

import sys
from typing import Any

from mindspore.ops.primitive import Primitive

from dualml.course.forbidden import PRIMITIVES
from dualml.course.guards import refuse_ready_made

#: Modules under which compiled functions of optimizers are found.
COMPILED = ("mindspore._c_expression", "mindspore.ops.auto_generate")


def seal() -> None:
    """Let primitives of optimizers refuse to be made, under whatever name they are asked for."""
    make = Primitive.__init__

    def checked(self: Any, name: str, *arguments: Any, **options: Any) -> None:
        if name in {*PRIMITIVES, "AdamW", "ApplyAdamW"}:
            refuse_ready_made(f"mindspore.ops.{name}")
        make(self, name, *arguments, **options)

    Primitive.__init__ = checked
    for module in COMPILED:
        for name in ("pyboost_adamw", "AdamWPrim_"):
            if hasattr(sys.modules.get(module), name):
                delattr(sys.modules[module], name)
