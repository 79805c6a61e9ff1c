"""The source lines of an optimizer: the operations they call, and mutations of them.

For a user's own optimizer these are its own lines; for PyTorch's, those of the rules written out in
`dualml_torch.causes.rules`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from dualml.parity.causes.alteration import Alteration
from dualml.parity.causes.lines import GRADIENT, PARAMETER
from dualml.parity.models.operations import Operation, Tape, snippet
from dualml_torch.causes import rules
from dualml_torch.causes.altering import altered
from dualml_torch.causes.functions import transform
from dualml_torch.operations import SKIP, Watch, name_of, tensors

Value = torch.Tensor
RULES = str(rules.__file__)
#: Files whose lines do not belong to an optimizer.
OTHERS = (
    *(one for one in SKIP if not RULES.startswith(one)),
    *(str(one) for one in Path(RULES).parents[1].rglob("*.py") if str(one) != RULES),
)


def file_of(optimizer: Any) -> str:
    """Return the source file of a user's own optimizer class; an empty string for PyTorch's."""
    file = getattr(sys.modules.get(type(optimizer).__module__), "__file__", "") or ""
    return "" if file.startswith(SKIP) else file


def calls_of(
    step: Callable[[], Any], files: Iterable[str], parameters: Sequence[Value]
) -> list[Operation]:
    """Return the operations that a step calls from the lines of some files."""
    tape = Tape(lambda one: one.detach().cpu().numpy().copy(), OTHERS)
    for i, p in enumerate(parameters):
        tape.known(p, f"{PARAMETER}:{i}")
        if p.grad is not None:
            tape.known(p.grad, f"{GRADIENT}:{i}")
    with Watch(tape):
        step()
    return [one for one in tape.calls if one.place is not None and one.place.file in files]


class Lines(TorchFunctionMode):
    """A mode inside which some expressions of an optimizer call something else.

    Args:
        changes: mutations with action ``line:…``; ``line`` is the key of the expression.
        parameters: parameters that the optimizer updates.
    """

    def __init__(self, changes: Sequence[Alteration], parameters: Sequence[Value]) -> None:
        super().__init__()
        self.changes: dict[str, list[Alteration]] = {}
        for change in changes:
            self.changes.setdefault(change.line, []).append(change)
        #: Deferred expressions: key of the expression that triggers one → the mutation.
        self.followed = {str(c.value): c for c in changes if c.action == "line:swap"}
        self.held: tuple[Any, Sequence[Any], Mapping[str, Any]] | None = None
        self.known: dict[tuple[CodeType, int], str] = {}
        #: Latest result of every expression; below, the parameter that is being updated.
        self.latest: dict[str, Value] = {}
        self.owners = {id(p): p for p in parameters}
        self.owners |= {id(p.grad): p for p in parameters if p.grad is not None}
        self.now: Value | None = None
        #: Tensors whose in-place update is deferred, and their new values.
        self.late: list[tuple[Value, Value]] = []

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        self.write()

    def write(self) -> None:
        """Write the deferred values of in-place operations."""
        with torch.no_grad():
            for tensor, value in self.late:
                tensor.copy_(value)
        self.late.clear()

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        key = self.key(sys._getframe(1))
        for one in tensors((args, kwargs)):
            self.now = self.owners.get(id(one), self.now)
        result = self.call(key, func, args, kwargs)
        if isinstance(result, Value):
            self.latest[key] = result
        if key in self.followed and self.held is not None:
            before, first, named = self.held
            self.held = None
            return before(result, *first[1:], **named)
        return result

    def call(self, key: str, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the operation of an expression under its mutations."""
        for change in self.changes.get(key, ()):
            if change.operation != name_of(func):
                continue
            if change.action == "line:swap":
                self.held = (func, args, kwargs)
                return tensors((args, kwargs))[0]
            if change.action == "line:drop" and change.operation.endswith("_"):
                return args[0]
            if change.action == "line:output" and change.operation.endswith("_"):
                result = func(*args, **kwargs)
                with torch.no_grad():
                    return result.copy_(transform(change.value, result.clone()))
            if change.action == "line:late":
                self.write()
                value = func(args[0].clone(), *args[1:], **kwargs)
                self.late.append((args[0], value))
                return args[0]
            if change.action == "line:begin":
                like = self.value(str(change.value), func(*args, **kwargs))
                return like.clone()
            own = Alteration(
                change.kind,
                change.action.removeprefix("line:"),
                (0,),
                change.operation,
                change.argument,
                change.value,
                change.old,
            )
            if change.action == "line:operand":
                at = tensors((args, kwargs))[int(change.argument)]
                other = self.value(str(change.value), at)
                args = [other if one is at else one for one in args]
                return func(*args, **{k: other if v is at else v for k, v in kwargs.items()})
            return altered(own, func, change.operation, args, kwargs)
        return func(*args, **kwargs)

    def value(self, name: str, like: Value) -> Value:
        """Return the latest result of an expression, or the current parameter or its gradient.

        Raises:
            ValueError: there is no such value of the shape of ``like``.
        """
        other = self.latest.get(name)
        if name in (PARAMETER, GRADIENT) and self.now is not None:
            other = self.now if name == PARAMETER else self.now.grad
        if other is None or other.shape != like.shape:
            raise ValueError(f"no {name} of shape {tuple(like.shape)}")
        return other

    def key(self, frame: Any) -> str:
        """Return the key ``line:expression`` of the user's frame; an empty string without one."""
        while frame is not None and frame.f_code.co_filename.startswith(OTHERS):
            frame = frame.f_back
        if frame is None:
            return ""
        at = frame.f_code, frame.f_lasti
        if at not in self.known:
            self.known[at] = f"{frame.f_lineno}:{snippet(*at)}"
        return self.known[at]
