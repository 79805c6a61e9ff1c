"""The two sides of a comparison of models: framework, mode, device, dtype and interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dualml.backend import BackendInfo
from dualml.common.errors import UserError, did_you_mean
from dualml.common.machine import parse_device
from dualml.parity.models.interpreter import Interpreter, probe_interpreter

#: Frameworks of the two sides where neither the source nor the user says which.
FRAMEWORKS = ("torch", "mindspore")
LETTERS = ("a", "b")
DEVICE, DTYPE = "cpu", "float32"
#: Dtype of a side → its name in `dualml.algorithms.precision`.
PRECISIONS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class Side:
    """The settings with which `dualml.parity.compare` runs one of its two models.

    Args:
        framework: ``torch``, ``mindspore`` or another backend; empty: found from what the model's
            file imports.
        mode: ``eager`` or ``compile`` for PyTorch; ``pynative``, ``graph`` (the compiler's default
            level), ``graph-O0`` or ``graph-O1`` for MindSpore. Empty: not compiled.
        device: ``cpu``, ``cuda``, ``cuda:1``, ``ascend``, …
        dtype: ``float32``, ``bfloat16`` or ``float16``, of weights and inputs.
        python: the interpreter of another environment; None: this one.

    Example:
        >>> Side(mode="compile", dtype="bfloat16").mode
        'compile'
    """

    framework: str = ""
    mode: str = ""
    device: str = DEVICE
    dtype: str = DTYPE
    python: str | Path | None = None


@dataclass(frozen=True)
class ResolvedSide:
    """One side of a comparison, as a worker runs it.

    Attributes:
        letter: ``a`` or ``b``, as the user named it.
        info: its backend.
        model: import spec of its model, see `dualml.parity.models.model_ref.to_import_spec`.
        mode: one of the backend's modes; empty for a backend without any.
        device, dtype: as in `Side`.
        interpreter: interpreter of another environment; None: this process's.
        overlay: folder of links to dualml for that interpreter.
        loss, optimizer: as `dualml.parity.models.inputs` resolves them.
        label: its name in results.
    """

    letter: str
    info: BackendInfo
    model: Mapping[str, Any]
    mode: str = ""
    device: str = DEVICE
    dtype: str = DTYPE
    interpreter: Interpreter | None = None
    overlay: str = ""
    loss: Any = None
    optimizer: Any = None
    label: str = ""

    @property
    def is_compiled(self) -> bool:
        """Whether a compiler of the framework translates the model."""
        return bool(self.mode) and self.mode != self.info.modes[0]

    def without_compiler(self) -> ResolvedSide:
        """Return the same side in the framework's mode that compiles nothing."""
        return replace(self, mode=self.info.modes[0]) if self.is_compiled else self

    def is_same_run(self, other: ResolvedSide) -> bool:
        """Return whether both sides run the same model with the same settings, the mode included,
        so that there is nothing to compare."""
        return self.computation == other.computation and self.mode == other.mode

    @property
    def computation(self) -> tuple[Any, ...]:
        """All settings that distinguish sides, except for the mode, as a tuple to compare."""
        path = None if self.interpreter is None else self.interpreter.path
        model = self.model["file"] or self.model["module"], self.model["name"]
        return self.info.name, model, self.device, self.dtype, path, self.loss, self.optimizer

    def describe(self) -> dict[str, Any]:
        """Return the side as JSON for the job that a worker reads; ``mode`` is empty if nothing is
        compiled."""
        return {
            "label": self.label,
            "letter": self.letter,
            "package": self.info.package,
            "model": dict(self.model),
            "loss": self.loss,
            "optimizer": self.optimizer,
            "mode": self.mode if self.is_compiled else "",
            "device": self.device,
            "dtype": self.dtype,
        }


def resolve_side(
    side: Side, letter: str, info: BackendInfo, model: Mapping[str, Any], overlay: Path
) -> ResolvedSide:
    """Check the settings of one side and return it, without loss, optimizer and label.

    Args:
        letter: ``a`` or ``b``.
        model: import spec of the model.
        overlay: folder in which a folder for the interpreter of another environment is made, if the
            side has one.

    Raises:
        UserError: a mode that the framework lacks, an unknown dtype or device, or an interpreter
            that cannot run it; the message names the option.
    """
    modes = info.modes or ("",)
    mode = side.mode or modes[0]
    if mode not in modes:
        named = ", ".join(filter(None, modes)) or "none"
        raise UserError(
            f"--{letter}-mode: {info.name} has no mode {side.mode!r}; its modes are {named}"
        )
    if side.dtype not in PRECISIONS:
        raise UserError(
            f"--{letter}-dtype: unknown dtype {side.dtype!r}{did_you_mean(side.dtype, PRECISIONS)}"
        )
    try:
        parse_device(side.device)
    except UserError as error:
        raise UserError(f"--{letter}-device: {error}") from None
    interpreter = None
    if side.python is not None:
        interpreter = probe_interpreter(side.python, f"--{letter}-python", info.framework)
    folder = "" if interpreter is None else str(interpreter.make_overlay(overlay / letter))
    return ResolvedSide(letter, info, model, mode, side.device, side.dtype, interpreter, folder)


def label_sides(a: ResolvedSide, b: ResolvedSide) -> tuple[ResolvedSide, ResolvedSide]:
    """Return copies of both sides with different labels: ``torch`` and ``mindspore``,
    ``torch eager`` and ``torch compile``, ``torch A`` and ``torch B``.

    Where the frameworks differ, only settings other than the defaults are added; where they are
    equal, all settings in which the sides differ.
    """
    pairs = [
        (a.mode, b.mode, (a.info.modes or ("",))[0], (b.info.modes or ("",))[0]),
        (a.dtype, b.dtype, DTYPE, DTYPE),
        (a.device, b.device, DEVICE, DEVICE),
        (version_of(a), version_of(b), "", ""),
    ]
    if a.info.name != b.info.name:
        words = (
            [x for x, _, plain, _ in pairs if x not in (plain, "")],
            [y for _, y, _, plain in pairs if y not in (plain, "")],
        )
    else:
        unequal = [(x, y) for x, y, _, _ in pairs if x != y]
        words = [x for x, _ in unequal if x], [y for _, y in unequal if y]
    first, second = (" ".join([s.info.name, *w]) for s, w in zip((a, b), words, strict=True))
    if first == second:
        first, second = f"{first} A", f"{second} B"
    return replace(a, label=first), replace(b, label=second)


def version_of(side: ResolvedSide) -> str:
    """Return the version of the framework in the side's own environment; empty if the side runs in
    this one, or if the version is unknown."""
    return "" if side.interpreter is None else side.interpreter.framework_version


def refuse_same_run(a: ResolvedSide, b: ResolvedSide) -> None:
    """Raise `UserError` if both sides are the same model, run in the same way."""
    if a.is_same_run(b):
        mode = f" in mode {a.mode}" if a.mode else ""
        raise UserError(
            f"nothing to compare: both sides are {a.model['name']} of "
            f"{a.model['file'] or a.model['module']}{mode}; name another model, or another mode, "
            "device, dtype or python for one side (--b-mode, --b-device, --b-dtype, --b-python)"
        )


def coarsest_precision(sides: Sequence[ResolvedSide]) -> str:
    """Return the precision to which both sides' initial weights and inputs are rounded, so that
    they begin with the same numbers: ``bf16`` if either side has it, else ``fp16`` or ``fp32``."""
    order = list(PRECISIONS.values())
    return max((PRECISIONS[side.dtype] for side in sides), key=order.index)
