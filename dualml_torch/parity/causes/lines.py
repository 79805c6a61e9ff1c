"""The source lines of an optimizer: the operations they call, and mutations of them.

For a user's own optimizer these are its own lines; for PyTorch's, those of the rules written out in
`dualml_torch.parity.causes.rules`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.optimizer_lines import GRADIENT, PARAMETER
from dualml.parity.models.operations import Operation, Tape, expression_text
from dualml_torch.parity.causes import rules
from dualml_torch.parity.causes.call_mutations import call_mutated
from dualml_torch.parity.causes.functions import transform
from dualml_torch.parity.operations import SKIP, OperationTracer, find_tensors, operation_name

Value = torch.Tensor
RULES_FILE = str(rules.__file__)
#: Files whose lines do not belong to an optimizer.
SKIPPED_FILES = (
    *(one for one in SKIP if not RULES_FILE.startswith(one)),
    *(str(one) for one in Path(RULES_FILE).parents[2].rglob("*.py") if str(one) != RULES_FILE),
)


def optimizer_file(optimizer: Any) -> str:
    """Return the path of the source file of a user's own optimizer class; an empty string for
    PyTorch's and dualml's."""
    file = getattr(sys.modules.get(type(optimizer).__module__), "__file__", "") or ""
    return "" if file.startswith(SKIP) else file


def trace_calls(
    step: Callable[[], Any], files: Iterable[str], parameters: Sequence[Value]
) -> list[Operation]:
    """Run ``step``, an optimizer's update, and return the operations that it calls from source
    lines in these ``files``. In them the ``parameters`` and their gradients are called
    ``parameter:0``, ``gradient:0``, …"""
    tape = Tape(lambda one: one.detach().cpu().numpy().copy(), SKIPPED_FILES)
    for i, p in enumerate(parameters):
        tape.register(p, f"{PARAMETER}:{i}")
        if p.grad is not None:
            tape.register(p.grad, f"{GRADIENT}:{i}")
    with OperationTracer(tape):
        step()
    return [one for one in tape.calls if one.place is not None and one.place.file in files]


class MutatedLines(TorchFunctionMode):
    """A mode inside which some expressions of an optimizer's source call something else.

    Args:
        changes: mutations with action ``line:…``; ``line`` is the key of the expression,
            ``LINE:EXPRESSION``.
        parameters: parameters that the optimizer updates.
    """

    def __init__(self, changes: Sequence[Mutation], parameters: Sequence[Value]) -> None:
        super().__init__()
        self.changes: dict[str, list[Mutation]] = {}
        for change in changes:
            self.changes.setdefault(change.line, []).append(change)
        #: Deferred expressions: key of the expression that triggers one → the mutation.
        self.swap_partners = {str(c.value): c for c in changes if c.action == "line:swap"}
        self.deferred_call: tuple[Any, Sequence[Any], Mapping[str, Any]] | None = None
        self.keys_by_position: dict[tuple[CodeType, int], str] = {}
        #: Latest result of every expression; below, the parameter that is being updated.
        self.latest: dict[str, Value] = {}
        self.owners = {id(p): p for p in parameters}
        self.owners |= {id(p.grad): p for p in parameters if p.grad is not None}
        self.current_parameter: Value | None = None
        #: Tensors whose in-place update is deferred, and their new values.
        self.late_writes: list[tuple[Value, Value]] = []

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        self.flush_late_writes()

    def flush_late_writes(self) -> None:
        """Write the deferred values of in-place operations into their tensors and forget them."""
        with torch.no_grad():
            for tensor, value in self.late_writes:
                tensor.copy_(value)
        self.late_writes.clear()

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        key = self.expression_key(sys._getframe(1))
        for one in find_tensors((args, kwargs)):
            self.current_parameter = self.owners.get(id(one), self.current_parameter)
        result = self.call_line(key, func, args, kwargs)
        if isinstance(result, Value):
            self.latest[key] = result
        if key in self.swap_partners and self.deferred_call is not None:
            before, first, named = self.deferred_call
            self.deferred_call = None
            return before(result, *first[1:], **named)
        return result

    def call_line(self, key: str, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the operation ``func`` of the expression ``key`` under the first mutation for it, if
        any, and return the result."""
        for change in self.changes.get(key, ()):
            if change.operation != operation_name(func):
                continue
            if change.action == "line:swap":
                self.deferred_call = (func, args, kwargs)
                return find_tensors((args, kwargs))[0]
            if change.action == "line:drop" and change.operation.endswith("_"):
                return args[0]
            if change.action == "line:output" and change.operation.endswith("_"):
                result = func(*args, **kwargs)
                with torch.no_grad():
                    return result.copy_(transform(change.value, result.clone()))
            if change.action == "line:late":
                self.flush_late_writes()
                value = func(args[0].clone(), *args[1:], **kwargs)
                self.late_writes.append((args[0], value))
                return args[0]
            if change.action == "line:begin":
                like = self.latest_value(str(change.value), func(*args, **kwargs))
                return like.clone()
            own = Mutation(
                change.kind,
                change.action.removeprefix("line:"),
                (0,),
                change.operation,
                change.argument,
                change.value,
                change.old,
            )
            if change.action == "line:operand":
                at = find_tensors((args, kwargs))[int(change.argument)]
                other = self.latest_value(str(change.value), at)
                args = [other if one is at else one for one in args]
                return func(*args, **{k: other if v is at else v for k, v in kwargs.items()})
            return call_mutated(own, func, change.operation, args, kwargs)
        return func(*args, **kwargs)

    def latest_value(self, name: str, like: Value) -> Value:
        """Return the latest result of the expression ``name`` (its key), or the parameter that is
        being updated, or its gradient, for their names in `optimizer_lines`.

        Raises:
            ValueError: there is no such value of the shape of ``like``.
        """
        other = self.latest.get(name)
        if name in (PARAMETER, GRADIENT) and self.current_parameter is not None:
            other = self.current_parameter if name == PARAMETER else self.current_parameter.grad
        if other is None or other.shape != like.shape:
            raise ValueError(f"no {name} of shape {tuple(like.shape)}")
        return other

    def expression_key(self, frame: Any) -> str:
        """Return the key ``line:expression`` of the innermost frame that is in no skipped file,
        from ``frame`` outwards; an empty string without one."""
        while frame is not None and frame.f_code.co_filename.startswith(SKIPPED_FILES):
            frame = frame.f_back
        if frame is None:
            return ""
        at = frame.f_code, frame.f_lasti
        if at not in self.keys_by_position:
            self.keys_by_position[at] = f"{frame.f_lineno}:{expression_text(*at)}"
        return self.keys_by_position[at]
