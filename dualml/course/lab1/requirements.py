"""Requirements on the optimizers of Lab 1, by framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dualml.course.exercise import Requirement
from dualml.course.lab1.hyperparameters import (
    draw_changed,
    draw_gd,
    draw_others,
    make_adam_draw,
    make_sgd_draw,
)
from dualml.course.lab1.mistakes import (
    ADAM_DECAY,
    ADAM_GRADIENT,
    COMMON,
    CORRECTION,
    DECOUPLED,
    GRADIENT,
    GROUPS,
    MOMENTS,
    MOMENTUM,
    NESTEROV,
    OF_CLASS,
    PLAIN,
    RATES,
    SGD_DECAY,
    SHAPES_DIFFER,
)
from dualml.course.lab1.unchanged import UnchangedRequirement
from dualml.course.lab1.updates import GROUP_PLACES, PLACES, OptimizerRequirement


def optimizer_requirements(backend: str) -> list[Requirement]:
    """Return the requirements of one framework's file, in the order in which a student works on
    them."""
    torch = backend == "torch"
    rates = SHAPES_DIFFER if torch else (*RATES, *SHAPES_DIFFER)
    found: list[Requirement] = [
        *gd_requirements(rates),
        *sgd_requirements(rates),
        *adam_requirements(rates),
        *independence_requirements(rates),
        *(group_requirements() if torch else graph_requirements(rates)),
    ]
    order = ["GD", "SGD", "Adam"]
    return sorted(found, key=lambda requirement: order.index(requirement.target))


def gd_requirements(rates: Sequence[tuple[str, str]]) -> list[Requirement]:
    """Return the requirements on gradient descent; ``rates`` are patterns of errors."""
    return [
        OptimizerRequirement("gd.update", "GD", draw_gd, (*COMMON, *GRADIENT), errors=rates),
        OptimizerRequirement("gd.rates", "GD", draw_gd, ("initial_lr",), rates=True, errors=rates),
    ]


def sgd_requirements(rates: Sequence[tuple[str, str]]) -> list[Requirement]:
    """Return the requirements on SGD; ``rates`` are patterns of errors."""
    m, md = make_sgd_draw(momentum=True), make_sgd_draw(momentum=True, decay=True)
    mn = make_sgd_draw(momentum=True, nesterov=True)
    every = make_sgd_draw(momentum=True, decay=True, nesterov=True)
    undecayed = ("buffer_of_gradient#2", "buffer_of_gradient#3", "nesterov_undecayed")
    in_all = (*MOMENTUM, *NESTEROV, *undecayed, *SGD_DECAY)
    made: Sequence[tuple[str, Any, Sequence[str], dict[str, Any]]] = (
        ("plain", make_sgd_draw(), (*COMMON, *GRADIENT, "momentum_fixed"), {}),
        ("momentum", m, (*COMMON, *MOMENTUM, *PLAIN), {}),
        ("decay", make_sgd_draw(decay=True), SGD_DECAY, {}),
        ("nesterov", mn, (*MOMENTUM, *NESTEROV), {}),
        ("all", every, in_all, {}),
        ("rates", md, ("initial_lr", "lr_in_buffer"), {"rates": True}),
        ("zero", md, ("zero_as_missing",), {"zero": True}),
    )
    return [
        OptimizerRequirement(f"sgd.{name}", "SGD", hyper, flags, errors=rates, **more)
        for name, hyper, flags, more in made
    ]


def adam_requirements(rates: Sequence[tuple[str, str]]) -> list[Requirement]:
    """Return the requirements on Adam; ``rates`` are patterns of errors."""
    decay = make_adam_draw(decay=True)
    decoupled = make_adam_draw(decay=True, decoupled=True)
    always = (*COMMON, *ADAM_GRADIENT, *MOMENTS)
    biased = (*always, "always_corrected", "always_corrected#2")
    made: Sequence[tuple[str, Any, Sequence[str], dict[str, Any]]] = (
        ("biased", make_adam_draw(corrected=False), biased, {"rewritten": False}),
        ("update", make_adam_draw(), (*always, *CORRECTION), {}),
        ("decay", decay, ADAM_DECAY, {}),
        ("decoupled", decoupled, DECOUPLED, {}),
        ("rates", decay, ("initial_lr",), {"rates": True}),
        ("decoupled_rates", decoupled, ("initial_lr", "decoupled_initial_lr"), {"rates": True}),
        ("zero", decay, ("zero_as_missing",), {"zero": True}),
    )
    return [
        OptimizerRequirement(f"adam.{name}", "Adam", hyper, flags, errors=rates, **more)
        for name, hyper, flags, more in made
    ]


def group_requirements() -> list[Requirement]:
    """Return the requirements on parameter groups and missing gradients, which PyTorch has."""
    found: list[Requirement] = []
    md, adam = make_sgd_draw(momentum=True, decay=True), make_adam_draw(decay=True)
    anywhere = {
        "GD": (*COMMON, *GRADIENT),
        "SGD": (*COMMON, *GRADIENT, *MOMENTUM, *PLAIN, *NESTEROV, *SGD_DECAY),
        "Adam": (*COMMON, *ADAM_GRADIENT, *MOMENTS, *CORRECTION, *ADAM_DECAY, *DECOUPLED),
    }
    # Settings that a group has for itself, and those of them that change between updates.
    own: dict[str, Sequence[str]] = {
        "GD": (),
        "SGD": ("lr", "momentum", "weight_decay", "nesterov"),
        "Adam": (
            *("lr", "betas", "beta1", "beta2", "eps", "weight_decay", "decoupled"),
            "bias_correction",
        ),
    }
    changing = ("weight_decay", "nesterov", "eps", "decoupled")
    only_adam = ("step_per_group", "decay_ignored#3", "step_global", "step_per_parameter")
    for target, hyper in (("GD", draw_gd), ("SGD", md), ("Adam", adam)):
        low, more = target.lower(), only_adam if target == "Adam" else ()
        of_group = (*GROUPS, *(f"first_group#{name}" for name in own[target]), *more[:2])
        kept = (f"settings_of_start#{name}" for name in own[target] if name in changing)
        found += [
            OptimizerRequirement(
                f"{low}.groups",
                target,
                hyper,
                of_group,
                groups=draw_others,
                errors=(("shape|size of tensor", "shared_state"),),
                places=(*GROUP_PLACES, *PLACES),
                placed=(*of_group, *anywhere[target]),
            ),
            OptimizerRequirement(
                f"{low}.settings",
                target,
                hyper,
                ("initial_lr", "settings_of_start", *kept, *more[1:2]),
                settings=draw_changed,
                errors=SHAPES_DIFFER,
            ),
            OptimizerRequirement(
                f"{low}.missing",
                target,
                hyper,
                ("missing_as_zero", "missing_ends", *more[2:]),
                missing=True,
                errors=((r"Error: .*None", "missing_as_error"), *SHAPES_DIFFER),
            ),
        ]
    return [r for r in found if r.name != "gd.settings"]  # gd.rates is the same


def graph_requirements(rates: Sequence[tuple[str, str]]) -> list[Requirement]:
    """Return the requirements on optimizers that MindSpore compiles as graphs; ``rates`` are
    patterns of errors."""
    found: list[Requirement] = []
    every = make_sgd_draw(momentum=True, decay=True, nesterov=True)
    compiled: Sequence[tuple[str, Any, Sequence[str]]] = (
        ("GD", draw_gd, ()),
        ("SGD", every, ("momentum_ignored",)),
        ("Adam", make_adam_draw(decay=True), ("compiled_constant", "never_corrected")),
    )
    for target, hyper, more in compiled:
        # A Python number that counts in construct has 64 bits once it is compiled.
        errors = (("Data type conversion", "compiled_constant"),) if target == "Adam" else ()
        found.append(
            OptimizerRequirement(
                f"{target.lower()}.graph",
                target,
                hyper,
                (*more, "initial_lr"),
                rates=True,
                mode="graph",
                errors=(*errors, *rates),
                otherwise="compiled_apart",
                only_there=frozenset({"compiled_constant"}),
            )
        )
    return found


def independence_requirements(rates: Sequence[tuple[str, str]]) -> list[Requirement]:
    """Return the requirements on what an optimizer leaves alone, and on several optimizers, whose
    state and settings are their own; ``rates`` are patterns of errors."""
    found: list[Requirement] = []
    consumed = (r"empty parameter list|parameters.*(empty|can not be)", "parameters_changed")
    drawn: Sequence[tuple[str, Any, Sequence[str]]] = (
        ("GD", draw_gd, ("state_of_class#4",)),
        (
            "SGD",
            make_sgd_draw(momentum=True, decay=True, nesterov=True),
            tuple(
                flag
                for flag in OF_CLASS
                if flag.partition("#")[2] not in ("2", "6", "7", "9", "10")
            ),
        ),
        ("Adam", make_adam_draw(decay=True), OF_CLASS),
    )
    for target, hyper, flags in drawn:
        low = target.lower()
        found += [
            UnchangedRequirement(f"{low}.unchanged", target, hyper, errors=rates),
            OptimizerRequirement(
                f"{low}.several",
                target,
                hyper,
                flags,
                several=True,
                errors=(consumed, *rates),
            ),
        ]
    return found
