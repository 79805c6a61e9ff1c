"""The updates of all parameters by a rule of Lab 1, with typical mistakes as options.

Mistakes of the loop are made here: which parameters are updated, by which gradient and settings,
with whose state. A mistake may act at one place (`dualml.course.places`) on the axes ``step``
(number of the parameter's update), ``tensor`` (number of the parameter), ``member`` (number of the
parameter in its group), ``dimension`` (number of its dimensions), ``row`` (of its first dimension)
and ``group``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dualml.course.exercise import RIGHT, Array, Arrays, Flags
from dualml.course.lab1.adam import adam
from dualml.course.lab1.hyperparameters import Number, cast_hyperparameters
from dualml.course.lab1.memory import Memory, share_moments
from dualml.course.lab1.rules import Rule, gd, sgd
from dualml.course.places import flags_at

#: Flags of a setting, after the #, that is read from the first group or from the start for all.
SHARED_SETTING_FLAGS = ("first_group#", "settings_of_start#")

RULES: dict[str, Rule] = {"GD": gd, "SGD": sgd, "Adam": adam}


def trajectory(
    target: str,
    options: Mapping[str, Any],
    arrays: Arrays,
    flags: Flags = RIGHT,
    number: Number = np.float64,
) -> dict[str, Array]:
    """Return ``3/w`` → parameter w after update 3, for all parameters and updates; see
    `iterate_updates` for the arguments."""
    with np.errstate(all="ignore"):
        return dict(iterate_updates(target, options, arrays, flags, number))


def iterate_updates(
    target: str,
    options: Mapping[str, Any],
    arrays: Arrays,
    flags: Flags = RIGHT,
    number: Number = np.float64,
) -> Iterator[tuple[str, Array]]:
    """Yield ``3/w`` and parameter w after update 3, update by update, in the order of the
    parameters; a parameter that an update leaves out keeps its value.

    Args:
        options: ``hyper``; ``steps``; ``groups``, parameter → its own hyperparameters; ``rates``,
            the learning rate of each update; ``settings``, hyperparameters of each update;
            ``optimizers``, several optimizers, each with ``names`` of its parameters, ``hyper``,
            its ``first`` and its ``last`` update.
        arrays: ``p/w`` parameters, ``g/3/w`` gradients; a parameter may have none.
        number: dtype of the computation.
    """
    now = {key[2:]: a.astype(number) for key, a in arrays.items() if key.startswith("p/")}
    alone = {"names": list(now), "hyper": options["hyper"], "first": 1, "last": options["steps"]}
    walks = [
        Walk(target, i, own, options, arrays, flags, number)
        for i, own in enumerate(options.get("optimizers", [alone]))
    ]
    memory = Memory()
    for step in range(1, options["steps"] + 1):
        for walk in walks:
            if walk.first <= step <= walk.last:
                yield from walk.update(step, now, walks, memory)


class Walk:
    """Updates of one optimizer.

    Args:
        target: ``GD``, ``SGD`` or ``Adam``.
        index: number of the optimizer.
        own: its ``names``, ``hyper``, ``first`` and ``last`` update.
        options, arrays, flags, number: see `iterate_updates`.
    """

    def __init__(
        self,
        target: str,
        index: int,
        own: Mapping[str, Any],
        options: Mapping[str, Any],
        arrays: Arrays,
        flags: Flags,
        number: Number,
    ) -> None:
        self.rule, self.index, self.options, self.arrays = RULES[target], index, options, arrays
        self.number = number
        # An alias of a gradient whose memory is not written again is its copy.
        aliased = flags & {"moments_aliased"} if not options.get("rewritten", True) else RIGHT
        self.flags = (flags - aliased) | ({"moments_of_gradient#7"} if aliased else RIGHT)
        self.names: list[str] = own["names"]
        self.hyper, self.first, self.last = own["hyper"], own["first"], own["last"]
        self.groups: Mapping[str, Mapping[str, Any]] = options.get("groups", {})
        #: Whether a mistake acts on single rows, whose state is then kept apart.
        self.by_rows = any("row=" in flag for flag in flags)

    def update(
        self, step: int, now: dict[str, Array], walks: Sequence[Walk], memory: Memory
    ) -> Iterator[tuple[str, Array]]:
        """Make update ``step`` of this optimizer's parameters in ``now``, in place, and yield
        ``STEP/NAME`` and the value of each, also of those that it leaves as they are.

        Args:
            walks: all optimizers, by number.
            memory: state of all optimizers, changed in place.
        """
        memory.counts["calls"] += 1
        gradients = {name: self.arrays.get(f"g/{step}/{name}") for name in self.names}
        plain = [n for n in self.names if n not in self.groups]
        there = [n for n in self.names if gradients[n] is not None]
        last = [*there, *(n for n in there if n not in self.groups)]
        ended = False
        for i, name in enumerate(self.names):
            here = self.flags_of(i, now[name], memory)
            g, alone = gradients[name], name in self.groups
            if g is not None and "zero_as_missing" in here and not np.any(g):
                g = None
            # A group's own parameters are the only ones in it.
            ended = ended or (g is None and not alone and "missing_ends" in here)
            left_out = (
                ("last_parameter" in here and not alone and name != last[-1])
                or ("first_group_alone" in here and alone)
                or ("first_group_alone#2" in here and name != [*plain, *self.groups][-1])
                or (ended and not alone)
                or ("first_parameter" in here and i > 0)
                or ("first_parameter#2" in here and not alone and name != plain[0])
            )
            of_first = gradients[plain[0]] if plain and not alone else None
            if g is not None and of_first is not None and "other_parameter" in here:
                g = of_first if of_first.shape == g.shape else g
            if g is None and "missing_as_zero" in here:
                g = now[name] * 0
            if not left_out and g is not None:
                h = self.settings(step, name, here, walks)
                t = self.count(step, name, here, memory)
                memory.counts["updates", self.index, name] += 1
                self.update_rows(name, g.astype(self.number), t, h, here, now, memory)
            yield f"{step}/{name}", now[name]

    def flags_of(self, i: int, p: Array, memory: Memory) -> Flags:
        """Return the mistakes that act in the next update of parameter ``p``, the ``i``-th."""
        if not any("@" in flag for flag in self.flags):
            return self.flags
        name, groups = self.names[i], ["", *self.groups]
        updates = range(self.first, self.last + 1)
        total = sum(f"g/{step}/{name}" in self.arrays for step in updates)
        return flags_at(
            self.flags,
            step=(memory.counts["updates", self.index, name], total),
            tensor=(i, len(self.names)),
            dimension=(p.ndim, 3),
            group=(groups.index(name) if name in groups else 0, len(groups)),
            member=(0 if name in groups else i, len(self.names) - len(self.groups)),
        )

    def settings(self, step: int, name: str, f: Flags, walks: Sequence[Walk]) -> dict[str, Any]:
        """Return the hyperparameters of a parameter in an update, in the dtype of the computation,
        as the typical mistakes named in ``f`` read them."""
        base = self.hyper
        if "state_of_class#4" in f:  # those of the optimizer that was made last
            base = [w for w in walks if w.first <= step][-1].hyper
        own = dict(self.groups.get(name, {}))
        if {"first_group", "settings_of_start"} & f:  # the first group has those of the start
            own = {}
        elif "first_group#last" in f and self.groups:
            own = dict(list(self.groups.values())[-1])
        else:
            alike = {flag.partition("#")[2] for flag in f if flag.startswith(SHARED_SETTING_FLAGS)}
            own = {k: v for k, v in own.items() if k not in alike}
        h = {**base, **own}
        if "betas" in h:
            common = [f"first_group#beta{n}" in f for n in (1, 2)]
            pairs = zip(common, base["betas"], h["betas"], strict=True)
            h["betas"] = [first if shared else beta for shared, first, beta in pairs]
        if "state_of_class#8" in f:
            h["lr"] = [w for w in walks if w.first <= step][-1].hyper["lr"]
        if "rates" in self.options and "initial_lr" not in f:
            h["lr"] = self.options["rates"][step - 1]
        if "settings" in self.options and "settings_of_start" not in f:
            new = self.options["settings"][step - 1]
            kept = {"lr"} if "initial_lr" in f else set()
            kept |= {k for k in new if f"settings_of_start#{k}" in f}
            h |= {k: v for k, v in new.items() if k not in kept}
        if "decay_exempt" in f and ("beta" in name or "gamma" in name):
            h["weight_decay"] = 0.0
        return cast_hyperparameters({**h, "first_lr": base["lr"]}, self.number)

    def state_key(self, name: str, f: Flags) -> Any:
        """Return the key of a parameter's state, which mistakes share between parameters or
        optimizers."""
        i = self.names.index(name)
        if "shared_state" in f:
            return self.arrays[f"p/{name}"].shape
        keys = {
            "state_of_class": ("index", i),
            "state_of_class#3": ("parameter", name),
            "state_of_class#5": ("index", i, self.first > 1),
            "state_of_class#6": ("index", i),
            "state_of_class#7": ("parameter", name),
        }
        return next((keys[flag] for flag in keys if flag in f), (self.index, name))

    def count(self, step: int, name: str, f: Flags, memory: Memory) -> int:
        """Count one more update of a parameter, and return its number as these mistakes count."""
        shared = {"shared_state", "state_of_class", "state_of_class#3"} & f
        key = ("t", self.state_key(name, f) if shared else (self.index, name))
        memory.counts[key] += 1
        memory.counts["parameters", self.index] += 1
        groups = ["", *self.groups]
        group = groups.index(name) if name in groups else 0
        mistaken = {
            "step_per_parameter": memory.counts["parameters", self.index],
            "step_global": step,
            "state_of_class#2": memory.counts["calls"],
            "step_per_group": (step - 1) * len(groups) + group + 1,
        }
        return next((mistaken[flag] for flag in mistaken if flag in f), memory.counts[key])

    def update_rows(
        self,
        name: str,
        g: Array,
        t: int,
        h: Mapping[str, Any],
        f: Flags,
        now: dict[str, Array],
        memory: Memory,
    ) -> None:
        """Update parameter ``name`` in ``now``, in place, by its gradient ``g``, row by row if a
        mistake acts on rows.

        Args:
            t: number of the update, from 1.
            h: hyperparameters.
            f: mistakes.
            memory: state of all optimizers, changed in place.
        """
        key, p = self.state_key(name, f), now[name]
        rows = range(len(p)) if self.by_rows else (-1,)
        parts = []
        for row in rows:
            part = slice(None) if row < 0 else slice(row, row + 1)
            here = f if row < 0 else flags_at(f, row=(row, len(p)))
            new = p[part]
            state = memory.states[key, row]
            common = memory.states["common", self.names.index(name), self.first > 1, row]
            share_moments(state, common, here)
            for _ in range("nothing" not in here and 1 + ("twice" in here)):
                new = np.asarray(self.rule(new, g[part], state, t, h, here))
            common |= state
            parts.append(new)
        now[name] = np.concatenate(parts) if self.by_rows else parts[0]
