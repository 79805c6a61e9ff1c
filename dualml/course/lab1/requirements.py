"""Requirements on the optimizers of Lab 1: steps with random values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.computed import ComputedRequirement, Draw, draw_adam, draw_lr, round_for_display
from dualml.course.exercise import Answer, Arrays, Difference, ExerciseCall, Flags, Requirement
from dualml.course.lab1.rules import trajectory
from dualml.course.mistakes import mistake_groups

#: Shapes of the parameters: two equal ones, for state that is shared by mistake; a name that
#: MindSpore's own optimizers exempt from decay; one number (of shape (1,), because MindSpore's step
#: counter turns shape () into (1,)).
SHAPES: dict[str, tuple[int, ...]] = {"weight": (2, 3), "twin": (2, 3), "beta": (3,), "scale": (1,)}
STEPS = 5
#: Difference, as a fraction of the largest number, beyond which an update is wrong and not rounded.
COARSE = 1e-2

COMMON, DECAY, MOMENTUM, NESTEROV, MOMENTS, CORRECTION = mistake_groups(
    "lab1", "common", "decay", "momentum", "nesterov", "moments", "correction"
)
#: Mistakes in SGD with weight decay.
SGD_DECAY = (*DECAY, "decay_decoupled", "decay_no_lr", "decay_afterwards")


def draw_gd(draw: Draw) -> dict[str, Any]:
    """Draw the hyperparameters of GD."""
    return {"lr": draw_lr(draw)}


def make_sgd_draw(momentum: bool = False, decay: bool = False, nesterov: bool = False) -> Any:
    """Make a function that draws hyperparameters of SGD; ``momentum`` and ``decay`` say whether
    these are drawn or 0."""

    def hyper(draw: Draw) -> dict[str, Any]:
        """Draw hyperparameters of SGD."""
        return {
            "lr": draw_lr(draw),
            "momentum": round_for_display(draw.uniform(0.5, 0.9)) if momentum else 0.0,
            "weight_decay": round_for_display(draw.uniform(0.1, 0.4)) if decay else 0.0,
            "nesterov": nesterov,
        }

    return hyper


def make_adam_draw(decay: bool = False, decoupled: bool = False, corrected: bool = True) -> Any:
    """Make a function that draws hyperparameters of Adam; weight decay is 0 unless ``decay``, and
    ``corrected`` says whether there is bias correction."""

    def hyper(draw: Draw) -> dict[str, Any]:
        """Draw hyperparameters of Adam."""
        return {
            **draw_adam(draw),
            "weight_decay": round_for_display(draw.uniform(0.1, 0.4)) if decay else 0.0,
            "decoupled": decoupled,
            "bias_correction": corrected,
        }

    return hyper


@dataclass
class OptimizerRequirement(ComputedRequirement):
    """Requirement on some updates of four parameters.

    Attributes:
        hyper: function that draws the hyperparameters.
        rates: whether every update has its own learning rate.
        groups: whether two parameters have their own learning rate.
        missing: whether a parameter has no gradient in every other update.
        zero: whether a parameter's gradient is 0 in every other update.
        rewritten: whether all gradients are written into the same memory.
        mode: MindSpore's mode: ``pynative`` or ``graph``.
    """

    name: str
    target: str
    hyper: Callable[[Draw], dict[str, Any]]
    flags: Sequence[str] = ()
    rates: bool = False
    groups: bool = False
    missing: bool = False
    zero: bool = False
    rewritten: bool = False
    mode: str = "pynative"
    errors: Sequence[tuple[str, str]] = ()
    otherwise: str = ""

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make one call of `STEPS` updates with random hyperparameters, parameters and gradients,
        float32 of two decimals; gradients are missing or zero as the attributes say."""
        options: dict[str, Any] = {"hyper": self.hyper(draw), "steps": STEPS, "mode": self.mode}
        if self.rates:
            options["rates"] = [draw_lr(draw) for _ in range(STEPS)]
            options["hyper"]["lr"] = options["rates"][0]
        if self.groups:
            own = {"lr": round_for_display(options["hyper"]["lr"] * 3)}
            options["groups"] = dict.fromkeys(("beta", "scale"), own)
        options["rewritten"] = self.rewritten
        arrays: dict[str, Any] = {f"p/{n}": draw.normal(size=s) for n, s in SHAPES.items()}
        for step in range(1, STEPS + 1):
            for name, shape in SHAPES.items():
                g = draw.normal(size=shape)
                if not (self.missing and name in ("twin", "scale") and step % 2):
                    arrays[f"g/{step}/{name}"] = g
        for name in ("twin", "beta") if self.zero else ():
            for step in range(2, STEPS + 1, 2):
                arrays[f"g/{step}/{name}"] *= 0
        # A gradient of exactly 0 would distinguish a missing epsilon from a tiny one.
        drawn = {
            n: np.where((a.round(2) == 0) & (a != 0), 0.05, a.round(2)) for n, a in arrays.items()
        }
        rounded_arrays = {n: a.astype(np.float32) for n, a in drawn.items()}
        return [ExerciseCall("optimizer", self.target, options, [rounded_arrays])]

    def compute(self, call: ExerciseCall, flags: Flags, number: Any) -> list[Arrays]:
        """Compute the parameters after every update in the dtype ``number``, with the mistakes
        ``flags``."""
        return [trajectory(self.target, call.options, call.arrays[0], flags, number)]

    def rules_out(self, call: ExerciseCall, answer: Answer, flags: Flags) -> bool:
        """Return whether the answer differs by more than rounding (`COARSE`) from the rule with
        these mistakes in the first update already."""
        options = {**call.options, "steps": 1}
        for key, expected in trajectory(self.target, options, call.arrays[0], flags).items():
            found = answer.arrays[0].get(key)
            if found is None or found.shape != expected.shape:
                return True
            if np.max(np.abs(found - expected)) > COARSE * (1 + np.max(np.abs(expected))):
                return True
        return False

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return the hyperparameters, the parameter's element before the wrong update, and its
        gradients so far; empty if the difference has no element."""
        step, _, name = difference.key.partition("/")
        arrays, index = call.arrays[0], difference.index
        if index is None:
            return {}
        before = arrays[f"p/{name}"]
        if int(step) > 1:
            before = self.expected(call)[0][f"{int(step) - 1}/{name}"]
        numbers: dict[str, Any] = {f"θ_{int(step) - 1}": float(before[index])}
        for at in range(1, int(step) + 1):
            g = arrays.get(f"g/{at}/{name}")
            numbers[f"g_{at}"] = None if g is None else float(g[index])
        return {**call.options["hyper"], **numbers}


def optimizer_requirements(backend: str) -> list[Requirement]:
    """Return the requirements of one framework's file, in the order in which a student works on
    them."""
    torch = backend == "torch"
    m, md = make_sgd_draw(momentum=True), make_sgd_draw(momentum=True, decay=True)
    every = make_sgd_draw(momentum=True, decay=True, nesterov=True)
    # MindSpore looks up the rate by the update's number, so there is one rate per update.
    ahead = () if torch else (("Gather.*input_indices", "counter_ahead"),)
    found: list[Requirement] = [
        OptimizerRequirement("gd.update", "GD", draw_gd, (*COMMON, "accumulated")),
        OptimizerRequirement("gd.rates", "GD", draw_gd, ("initial_lr",), rates=True, errors=ahead),
        OptimizerRequirement("sgd.plain", "SGD", make_sgd_draw(), COMMON),
        OptimizerRequirement("sgd.momentum", "SGD", m, (*COMMON, *MOMENTUM), rewritten=True),
        OptimizerRequirement("sgd.decay", "SGD", make_sgd_draw(decay=True), SGD_DECAY),
        OptimizerRequirement(
            "sgd.nesterov",
            "SGD",
            make_sgd_draw(momentum=True, nesterov=True),
            (*MOMENTUM, *NESTEROV),
            rewritten=True,
        ),
        OptimizerRequirement(
            "sgd.all", "SGD", every, (*MOMENTUM, *NESTEROV, "nesterov_undecayed", *SGD_DECAY)
        ),
        OptimizerRequirement(
            "sgd.rates", "SGD", md, ("initial_lr", "lr_in_buffer"), rates=True, errors=ahead
        ),
        OptimizerRequirement(
            "adam.biased",
            "Adam",
            make_adam_draw(corrected=False),
            (*COMMON, *MOMENTS, "always_corrected", "always_corrected#2"),
        ),
        OptimizerRequirement(
            "adam.update", "Adam", make_adam_draw(), (*COMMON, *MOMENTS, *CORRECTION)
        ),
        OptimizerRequirement(
            "adam.decay",
            "Adam",
            make_adam_draw(decay=True),
            (*DECAY, "always_decoupled", "second_undecayed"),
        ),
        OptimizerRequirement(
            "adam.decoupled",
            "Adam",
            make_adam_draw(decay=True, decoupled=True),
            (
                "decay_ignored",
                "always_coupled",
                "decoupled_no_lr",
                "decoupled_late",
                "decoupled_twice",
                "decoupled_twice#2",
            ),
        ),
        OptimizerRequirement(
            "adam.rates",
            "Adam",
            make_adam_draw(decay=True),
            ("initial_lr",),
            rates=True,
            errors=ahead,
        ),
        OptimizerRequirement("sgd.zero", "SGD", md, ("zero_as_missing",), zero=True),
        OptimizerRequirement(
            "adam.zero", "Adam", make_adam_draw(decay=True), ("zero_as_missing",), zero=True
        ),
    ]
    found += _group_requirements() if torch else _graph_requirements()
    order = ["GD", "SGD", "Adam"]
    return sorted(found, key=lambda requirement: order.index(requirement.target))


def _group_requirements() -> list[Requirement]:
    """Return the requirements on parameter groups and missing gradients, which PyTorch has."""
    found: list[Requirement] = []
    grouped: Sequence[tuple[str, Any, Sequence[str]]] = (
        ("GD", draw_gd, ()),
        ("SGD", make_sgd_draw(momentum=True, decay=True), ()),
        ("Adam", make_adam_draw(decay=True), ("step_global", "step_per_parameter")),
    )
    for target, hyper, more in grouped:
        low = target.lower()
        found += [
            OptimizerRequirement(
                f"{low}.groups",
                target,
                hyper,
                ("first_group", "first_group_alone"),
                groups=True,
                errors=(("shape|size of tensor", "shared_state"),),
            ),
            OptimizerRequirement(
                f"{low}.missing",
                target,
                hyper,
                ("missing_as_zero", "missing_ends", *more),
                missing=True,
                errors=((r"Error: .*None", "missing_as_error"),),
            ),
        ]
    return found


def _graph_requirements() -> list[Requirement]:
    """Return the requirements on optimizers that MindSpore compiles as graphs."""
    found: list[Requirement] = []
    compiled: Sequence[tuple[str, Any, Sequence[str]]] = (
        ("GD", draw_gd, ()),
        ("SGD", make_sgd_draw(momentum=True, decay=True, nesterov=True), ("momentum_ignored",)),
        ("Adam", make_adam_draw(decay=True), ("compiled_constant", "never_corrected")),
    )
    for target, hyper, more in compiled:
        # A Python number that counts in construct has 64 bits once it is compiled.
        errors = (("Data type conversion", "compiled_constant"),) if target == "Adam" else ()
        name = f"{target.lower()}.graph"
        found.append(
            OptimizerRequirement(
                name,
                target,
                hyper,
                more,
                mode="graph",
                errors=errors,
                otherwise="compiled_apart",
            )
        )
    return found
