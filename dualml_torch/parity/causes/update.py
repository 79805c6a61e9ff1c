"""Mutated optimizer updates: other settings, other rules, other gradients."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from dualml.parity.causes.mutation import Mutation
from dualml_torch.algorithms.optim.base import RuleOptimizer
from dualml_torch.parity.causes.clipping import replace_clipping
from dualml_torch.parity.causes.rules import RuleVariant, update_parameter

RULES = {
    torch.optim.Adam: "adam",
    torch.optim.AdamW: "adam",
    torch.optim.SGD: "sgd",
    torch.optim.RMSprop: "rmsprop",
    torch.optim.Adagrad: "adagrad",
    torch.optim.Adadelta: "adadelta",
}


class MutatedUpdate:
    """Runs the updates of an optimizer with some of its parameters updated in a mutated way.

    Args:
        changes: mutations with action ``optimizer``; ``argument`` names the setting or rule,
            ``value`` is the new value, ``old`` the names of the parameters (None: all).
        names: id of a parameter → its name in the model.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        changes: Sequence[Mutation],
        names: Mapping[int, str],
    ) -> None:
        self.optimizer, self.changes, self.names = optimizer, changes, names
        self.states: dict[int, dict[str, Any]] = {}
        self.count = 0

    def selected_parameters(self, change: Mutation, group: Mapping[str, Any]) -> list[torch.Tensor]:
        """Return the parameters of a group that ``change.old`` names; all of them if it is None."""
        wanted = change.old
        return [p for p in group["params"] if wanted is None or self.names.get(id(p)) in wanted]

    @torch.no_grad()
    def step(self, original: Callable[[], Any]) -> None:
        """Make one update under the mutations: call ``original``, the optimizer's own step, with
        mutated gradients, groups and rules, and correct the weights after it where a mutation needs
        it. Afterwards the groups and gradients are as before."""
        self.count += 1
        schedules = [c for c in self.changes if c.argument == "lr_schedule"]
        before = [
            (p, p.detach().clone(), c)
            for c in schedules
            for g in self.optimizer.param_groups
            for p in self.selected_parameters(c, g)
        ]
        kept = self.optimizer.param_groups
        gradients = {p: p.grad for g in kept for p in g["params"]}
        groups, own = list(kept), []
        clips: list[tuple[str, Any]] = []
        held: list[tuple[torch.Tensor, torch.Tensor]] = []
        late: list[tuple[torch.Tensor, float]] = []
        for change in self.changes:
            word = str(change.argument)
            if word.startswith("gradient:clip_"):
                clips.append((word.removeprefix("gradient:clip_"), change.value))
            elif word == "gradient:alone":
                original = self.step_each_alone(original)
            elif word.startswith("gradient:"):
                self.transform_gradients(change, word.removeprefix("gradient:"))
            elif word.startswith("form:"):
                own.append(change)
            elif word == "lr_schedule" or word.startswith("own:"):
                continue
            elif word == "skip":  # hidden from the optimizer
                groups = [
                    {**g, "params": [p for p in g["params"] if p not in left_out]}
                    for g in groups
                    for left_out in [set(self.selected_parameters(change, g))]
                ]
            elif word == "hold":
                held += [
                    (p, p.detach().clone())
                    for g in kept
                    for p in self.selected_parameters(change, g)
                ]
            elif word in ("decay:coupled", "decay:after"):
                decay = float(change.value)
                for g in kept:
                    for p in self.selected_parameters(change, g):
                        if word == "decay:after":
                            late.append((p, 1 - float(g["lr"]) * decay))
                        elif p.grad is not None:
                            p.grad = p.grad + decay * p
                none = replace(change, argument="weight_decay", value=0.0)
                groups = [g for group in groups for g in self.split_group(none, group)]
            elif word == "twice":
                original()
            elif word.startswith("exchange:"):
                groups = exchange_setting(groups, word.removeprefix("exchange:"))
            else:
                groups = [g for group in groups for g in self.split_group(change, group)]
        try:
            self.optimizer.param_groups = groups
            with contextlib.ExitStack() as stack:
                for way, value in clips:
                    stack.enter_context(replace_clipping(self.optimizer, way, value))
                if own:
                    original = stack.enter_context(self.replace_rule(own, groups, original))
                original()
        finally:  # remove a setting that the optimizer has refused
            self.optimizer.param_groups = kept
            for p, gradient in gradients.items():
                p.grad = gradient
        for p, was in held:
            p.copy_(was)
        for p, factor in late:
            p.mul_(factor)
        for p, was, change in before:  # a factor of the rate is a factor of the move
            p.copy_(was + change.value[min(self.count, len(change.value)) - 1] * (p - was))

    def step_each_alone(self, original: Callable[[], Any]) -> Callable[[], Any]:
        """Return a step that updates each parameter as if it were the only one: ``original`` is
        called once per parameter, with the numbers that the optimizer and its groups store, such as
        counts, as before the first call."""

        def step() -> None:
            groups = self.optimizer.param_groups
            counting: list[dict[str, Any]] = [vars(self.optimizer), *groups]
            counts = [{k: v for k, v in d.items() if isinstance(v, int | float)} for d in counting]
            gradients = {p: p.grad for g in groups for p in g["params"]}
            for p in gradients:
                for one, before in zip(counting, counts, strict=True):
                    one.update(before)
                for other in gradients:
                    other.grad = gradients[p] if other is p else None
                original()
            for p, gradient in gradients.items():
                p.grad = gradient

        return step

    @contextlib.contextmanager
    def replace_rule(
        self,
        changes: Sequence[Mutation],
        groups: Sequence[Mapping[str, Any]],
        original: Callable[[], Any],
    ) -> Iterator[Callable[[], Any]]:
        """Yield a step, to call inside the block, that updates the parameters that ``changes``
        select by a mutated formula (`apply_formula`), the others by ``original``.

        In a user's subclass of a PyTorch optimizer the formula replaces the rule of PyTorch's
        class, whose ``step`` is another one inside the block: changes of gradients before it and of
        weights after it are kept.
        """

        def with_formula(step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            chosen = [
                (p, group, change, p.grad)
                for change in changes
                for group in groups
                for p in self.selected_parameters(change, group)
                if p.grad is not None
            ]
            for p, *_ in chosen:
                p.grad = None
            result = step(*args, **kwargs)
            for p, group, change, gradient in chosen:
                p.grad = gradient
                self.apply_formula(p, group, change, gradient)
            return result

        kinds = type(self.optimizer).__mro__
        base = next(kind for kind in kinds if kind.__module__.startswith("torch."))
        if kinds[0].step is base.step:
            yield lambda: with_formula(original)
            return
        step, had = base.step, "step" in vars(base)
        base.step = lambda own, *args, **kwargs: with_formula(step, own, *args, **kwargs)
        try:
            yield original
        finally:
            if had:
                base.step = step
            else:
                del base.step

    def split_group(self, change: Mutation, group: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield a group's unchanged parameters, and those that the mutation selects with its
        setting, as up to two new groups; ``group`` is unchanged."""
        chosen = {id(p) for p in self.selected_parameters(change, group)}
        rest = [p for p in group["params"] if id(p) not in chosen]
        if rest:
            yield {**group, "params": rest}
        if chosen:
            yield {
                **group,
                "params": [p for p in group["params"] if id(p) in chosen],
                **group_setting(group, str(change.argument), change.value),
            }

    def transform_gradients(self, change: Mutation, what: str) -> None:
        """Replace the gradients of the selected parameters: clipped by their common ``norm`` or
        ``each_norm``, ``clamp``, ``scale``, ``centralize`` (mean over all axes but the first
        subtracted; from two axes on) or ``sign``; those of any other ``what`` stay."""
        chosen = [
            p
            for g in self.optimizer.param_groups
            for p in self.selected_parameters(change, g)
            if p.grad is not None
        ]
        if what == "norm":
            total = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in chosen]))  # type: ignore[union-attr]
            factor = torch.clamp(change.value / (total + 1e-6), max=1.0)
            for p in chosen:
                p.grad = p.grad * factor  # type: ignore[operator]
        for p in chosen:
            assert p.grad is not None
            if what == "each_norm":
                p.grad = p.grad * torch.clamp(change.value / (p.grad.norm() + 1e-6), max=1.0)
            elif what == "clamp":
                p.grad = p.grad.clamp(-change.value, change.value)
            elif what == "scale":
                p.grad = p.grad * change.value
            elif what == "centralize" and p.grad.dim() > 1:
                p.grad = p.grad - p.grad.mean(tuple(range(1, p.grad.dim())), keepdim=True)
            elif what == "sign":
                p.grad = p.grad.sign()

    def apply_formula(
        self, p: torch.Tensor, group: Mapping[str, Any], change: Mutation, g: torch.Tensor
    ) -> None:
        """Update the parameter ``p`` in place by its gradient ``g`` and the optimizer's rule,
        written out with the one change that ``form:…`` names; its state is kept here, and also in
        the optimizer if this has a sum of squares before the first step."""
        state = self.states.setdefault(id(p), {})
        form = str(change.argument).removeprefix("form:")
        decoupled = isinstance(self.optimizer, torch.optim.AdamW)
        decoupled = (decoupled or form == "decoupled") and form != "coupled"
        t = self.count - (form == "count_from_zero")
        variant = RuleVariant(rule_name(self.optimizer), form, decoupled)
        update_parameter(variant, p, g, group, state, t)
        total = self.optimizer.state.get(p, {}).get("sum")  # Adagrad's, which is compared
        if total is not None and "v" in state:
            total.copy_(state["v"])


def rule_name(optimizer: Any) -> str:
    """Return the name of the rule of a torch optimizer or a subclass, one of `RULES`; an empty
    string for any other."""
    return next((name for kind, name in RULES.items() if isinstance(optimizer, kind)), "")


def group_setting(group: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return the setting ``name`` of a group, changed to ``value``, as a dict to update it with:
    ``beta1`` changes the first of ``betas``, ``beta2`` the second, ``lr_factor`` multiplies
    ``lr``."""
    if name in ("beta1", "beta2"):
        betas = list(group["betas"])
        betas[int(name[-1]) - 1] = value
        return {"betas": tuple(betas)}
    if name == "lr_factor":
        return {"lr": group["lr"] * value}
    return {name: value}


def exchange_setting(groups: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return new groups, of two, with their values of the setting ``name`` (or ``beta1``,
    ``beta2``) exchanged; any other number of groups as they are."""
    if len(groups) != 2:
        return list(groups)
    values = [
        group["betas"][int(name[-1]) - 1] if name in ("beta1", "beta2") else group[name]
        for group in reversed(groups)
    ]
    return [
        {**group, **group_setting(group, name, value)}
        for group, value in zip(groups, values, strict=True)
    ]


def describe_groups(optimizer: Any, names: Mapping[int, str]) -> list[dict[str, Any]]:
    """Return one dict per parameter group of an optimizer: its numbers and flags, parameter
    ``names``, the rule (``form``), and ``own``, the public numbers and flags that the optimizer
    itself stores (empty for dualml's optimizers); an empty list for an object without groups.

    Args:
        names: id of a parameter → its name.
    """
    rows = []
    for group in getattr(optimizer, "param_groups", []):
        row = {
            k: v for k, v in group.items() if k != "params" and isinstance(v, bool | int | float)
        }
        if "betas" in group:
            row |= {"beta1": group["betas"][0], "beta2": group["betas"][1]}
        row["form"] = rule_name(optimizer)
        row["names"] = [names[id(p)] for p in group["params"] if id(p) in names]
        row["own"] = {
            k: v
            for k, v in vars(optimizer).items()
            if isinstance(v, bool | int | float)
            and not k.startswith("_")
            and not isinstance(
                optimizer, RuleOptimizer
            )  # its flag would compile, for half a minute
        }
        rows.append(copy.deepcopy(row))
    return rows
