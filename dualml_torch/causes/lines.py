"""The lines of a user's own optimizer: what they call, and what if they called something else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from dualml.parity.causes.alteration import Alteration
from dualml.parity.models.operations import Operation, Tape, snippet
from dualml_torch.causes.altered import altered
from dualml_torch.operations import SKIP, Watch, name_of, tensors

Value = torch.Tensor


def file_of(optimizer: Any) -> str:
    """The source of a user's own class; empty for PyTorch's."""
    file = getattr(sys.modules.get(type(optimizer).__module__), "__file__", "") or ""
    return "" if file.startswith(SKIP) else file


def calls_of(step: Callable[[], Any], file: str) -> list[Operation]:
    """What a step calls from the lines of a file."""
    tape = Tape(lambda one: one.detach().cpu().numpy().copy(), SKIP)
    with Watch(tape):
        step()
    return [one for one in tape.calls if one.place is not None and one.place.file == file]


class Lines(TorchFunctionMode):
    """Inside, some expressions of an optimizer call something else.

    Args:
        changes: with action ``line:…``; ``line`` is the expression, as `key` names it.
    """

    def __init__(self, changes: Sequence[Alteration]) -> None:
        super().__init__()
        self.changes: dict[str, list[Alteration]] = {}
        for change in changes:
            self.changes.setdefault(change.line, []).append(change)
        #: Expressions that wait for the one that follows.
        self.followed = {str(c.value): c for c in changes if c.action == "line:swap"}
        self.held: tuple[Any, Sequence[Any], Mapping[str, Any]] | None = None
        self.known: dict[tuple[CodeType, int], str] = {}

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        key = self.key(sys._getframe(1))
        for change in self.changes.get(key, ()):
            if change.operation != name_of(func):
                continue
            if change.action == "line:swap":
                self.held = (func, args, kwargs)
                return tensors((args, kwargs))[0]
            if change.action == "line:drop" and change.operation.endswith("_"):
                return args[0]
            own = Alteration(
                change.kind,
                change.action.removeprefix("line:"),
                (0,),
                change.operation,
                change.argument,
                change.value,
                change.old,
            )
            return altered(own, func, change.operation, args, kwargs)
        result = func(*args, **kwargs)
        if key in self.followed and self.held is not None:
            before, first, named = self.held
            self.held = None
            return before(result, *first[1:], **named)
        return result

    def key(self, frame: Any) -> str:
        while frame is not None and frame.f_code.co_filename.startswith(SKIP):
            frame = frame.f_back
        if frame is None:
            return ""
        at = frame.f_code, frame.f_lasti
        if at not in self.known:
            self.known[at] = f"{frame.f_lineno}:{snippet(*at)}"
        return self.known[at]
