"""What can be wrong with an update whose gradient is right: the rule with one thing changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from dualml.errors import UserError
from dualml.finder.causes.base import Arrays, Guess, Suspect, fit, rounded, tensors
from dualml.finder.causes.rules import variants
from dualml.optim import Adam, AdamW, Rule
from dualml.optim.base import Params, State

#: One update: (weights, gradients, state, number, step size) → weights and state after it.
Update = Callable[[Params, Params, State, int, float], tuple[Params, State]]
Numbers = Callable[[int, int], dict[str, Any]]


def guesses(suspect: Suspect) -> Iterator[Guess]:
    rule = suspect.scene.arm.rule
    for cause, fields in variants(rule):
        try:
            changed = replace(rule, **fields)
        except UserError:
            continue
        told = {name: list(v) if isinstance(v, tuple) else v for name, v in fields.items()}
        yield Guess(cause, by(suspect, changed.update), told)
    for cause, update, detail in (*coupling(rule), *starts(rule), *forms(rule)):
        yield Guess(cause, by(suspect, update), detail)
    yield from masks(suspect)
    yield from rates(suspect)
    yield from counts(suspect)
    yield from gradients(suspect)
    yield from precision(suspect)
    yield from unaveraged(suspect)


def given(suspect: Suspect, step: int, rank: int) -> tuple[Params, Params, State]:
    """Weights, gradients and state that the update starts from; the gradients are the backend's
    own, the referee's where those were not recorded."""
    scene = suspect.scene
    weights, state = scene.start(step)
    found: Any = scene.own_gradient(suspect.backend, rank, step)
    if not found:
        reference = scene.referee.ranks[rank]
        found = tensors(reference, step, "aggregation") or tensors(reference, step, "gradient")
    return weights, {n: found[n] for n in weights if n in found}, state


def told(suspect: Suspect, weights: Params, state: State) -> Arrays:
    """As the phase in question names it."""
    if suspect.phase == "update":
        return weights
    return {f"{slot}/{n}": a for slot, named in state.items() for n, a in named.items()}


def by(suspect: Suspect, update: Any, **changed: Any) -> Callable[[int, int], Arrays]:
    """What this update makes of the recorded weights, gradients and state.

    Args:
        changed: ``gradients``, ``rate`` or ``count``: (update, rank, what it is) → what it was.
    """

    def keep(step: int, rank: int, value: Any) -> Any:
        return value

    def predict(step: int, rank: int) -> Arrays:
        weights, grads, state = given(suspect, step, rank)
        if set(grads) != set(weights):
            return {}
        grads = changed.get("gradients", keep)(step, rank, grads)
        rate = changed.get("rate", keep)(step, rank, suspect.scene.rate(step))
        count = changed.get("count", keep)(step, rank, step)
        if grads is None or count < 1:
            return {}
        try:
            with np.errstate(all="ignore"):
                return told(suspect, *update(weights, grads, state, count, rate))
        except KeyError:  # a rule with more state than was recorded
            return {}

    return predict


def coupling(rule: Rule) -> Iterator[tuple[str, Update, dict[str, Any]]]:
    """Weight decay in the gradient or beside it."""
    decay = getattr(rule, "weight_decay", 0.0)
    if not decay:
        return
    if isinstance(rule, Adam):
        kind = Adam if isinstance(rule, AdamW) else AdamW
        other = kind(**asdict(rule))
        name = "AdamW" if kind is AdamW else "Adam"
        yield "decay-coupling", other.update, {"as": name}
    plain: Any = replace(rule, weight_decay=0.0)  # type: ignore[call-arg]

    def beside(p: Params, g: Params, s: State, t: int, lr: float) -> tuple[Params, State]:
        return plain.update({n: w * (1 - lr * decay) for n, w in p.items()}, g, s, t, lr)  # type: ignore[no-any-return]

    def unscaled(p: Params, g: Params, s: State, t: int, lr: float) -> tuple[Params, State]:
        return plain.update({n: w * (1 - decay) for n, w in p.items()}, g, s, t, lr)  # type: ignore[no-any-return]

    yield "decay-coupling", beside, {"as": "decoupled"}
    yield "decay-without-rate", unscaled, {"decay": decay}


def starts(rule: Rule) -> Iterator[tuple[str, Update, dict[str, Any]]]:
    """State that begins elsewhere than the rule's."""
    for slot in rule.slots:
        for value in (0.1, 1.0, 0.0):

            def update(
                p: Params, g: Params, s: State, t: int, lr: float,
                slot: str = slot, value: float = value,
            ) -> tuple[Params, State]:  # fmt: skip
                if t == 1:
                    s = {**s, slot: {n: np.full_like(a, value) for n, a in p.items()}}
                return rule.update(p, g, s, t, lr)

            yield "state-start", update, {"slot": slot, "value": value}


def forms(rule: Rule) -> Iterator[tuple[str, Update, dict[str, Any]]]:
    """The same letters in another formula."""
    eps, slots = getattr(rule, "eps", 0.0), rule.slots
    if isinstance(rule, Adam):

        def inside(p: Params, g: Params, s: State, t: int, lr: float) -> tuple[Params, State]:
            _, state = rule.update(p, g, s, t, lr)
            (b1, b2), out = rule.betas, {}
            for n in p:
                m, v = state["exp_avg"][n] / (1 - b1**t), state["exp_avg_sq"][n] / (1 - b2**t)
                base = p[n] * (1 - lr * rule.weight_decay) if rule.decoupled else p[n]
                out[n] = base - lr * m / np.sqrt(v + eps)
            return out, state

        yield "eps-inside-root", inside, {"eps": eps}
    elif "square_avg" in slots or "sum" in slots:
        slot = "square_avg" if "square_avg" in slots else "sum"

        def root(p: Params, g: Params, s: State, t: int, lr: float) -> tuple[Params, State]:
            _, state = rule.update(p, g, s, t, lr)
            return {n: p[n] - lr * g[n] / np.sqrt(state[slot][n] + eps) for n in p}, state

        yield "eps-inside-root", root, {"eps": eps}
    if "momentum_buffer" in slots and not eps:
        mu: float = getattr(rule, "momentum", 0.0)

        def average(p: Params, g: Params, s: State, t: int, lr: float) -> tuple[Params, State]:
            b = {n: mu * s["momentum_buffer"][n] + (1 - mu) * g[n] for n in p}
            return {n: p[n] - lr * b[n] for n in p}, {"momentum_buffer": b}

        def inside_buffer(
            p: Params, g: Params, s: State, t: int, lr: float
        ) -> tuple[Params, State]:
            b = {n: mu * s["momentum_buffer"][n] + lr * g[n] for n in p}
            return {n: p[n] - b[n] for n in p}, {"momentum_buffer": b}

        def reset(p: Params, g: Params, s: State, t: int, lr: float) -> tuple[Params, State]:
            empty = {slot: {n: np.zeros_like(a) for n, a in p.items()} for slot in slots}
            return rule.update(p, g, empty, t, lr)

        yield "momentum-average", average, {}
        yield "rate-in-buffer", inside_buffer, {}
        yield "state-lost", reset, {}
    elif slots:

        def fresh(p: Params, g: Params, s: State, t: int, lr: float) -> tuple[Params, State]:
            return rule.update(p, g, rule.init(p), t, lr)

        yield "state-lost", fresh, {}

    def twice(p: Params, g: Params, s: State, t: int, lr: float) -> tuple[Params, State]:
        return rule.update(*_swap(g, rule.update(p, g, s, t, lr)), t + 1, lr)

    yield "updated-twice", twice, {}


def _swap(g: Params, made: tuple[Params, State]) -> tuple[Params, Params, State]:
    return made[0], g, made[1]


def masks(suspect: Suspect) -> Iterator[Guess]:
    """Some parameters that the decay, or the whole update, passes over."""
    rule, weights = suspect.scene.arm.rule, suspect.scene.weights(suspect.looks[0][0])
    layers = dict(suspect.scene.spec.layers)
    biases = [n for n in weights if n.rpartition(".")[2].startswith("bias")]
    kinds = {n: type(layers[n.rpartition(".")[0]]).__name__ for n in weights}
    norms = [n for n in weights if kinds[n] == "LayerNorm"]
    flat = [n for n, w in weights.items() if w.ndim == 1]
    decay = getattr(rule, "weight_decay", 0.0)
    if decay:
        plain: Any = replace(rule, weight_decay=0.0)  # type: ignore[call-arg]
        for what, names in (("biases", biases), ("LayerNorm", norms), ("vectors", flat)):
            if names and set(names) != set(weights):
                yield Guess(
                    "decay-filter", by(suspect, mixed(rule, plain, names)), {"without": what}
                )
        everything = [n for n in weights if n not in biases]
        yield Guess(
            "decay-filter", by(suspect, mixed(rule, plain, everything)), {"without": "weights"}
        )
    for what, names in (("biases", biases), ("the last layer", [*weights][-2:]),
                        ("the first layer", [*weights][:2]), ("LayerNorm", norms),
                        ("the tensor named", [suspect.tensor.rpartition("/")[2]])):  # fmt: skip
        if names and set(names) < set(weights):
            update = mixed(rule, None, names)
            yield Guess(
                "frozen-parameters", by(suspect, update), {"parameters": names, "are": what}
            )
    yield Guess(
        "frozen-parameters", by(suspect, mixed(rule, None, list(weights))), {"parameters": "all"}
    )


def mixed(rule: Any, other: Any, names: list[str]) -> Update:
    """``rule``, but ``other`` (nothing, where that is None) for some parameters."""

    def update(p: Params, g: Params, s: State, t: int, lr: float) -> tuple[Params, State]:
        usual = rule.update(p, g, s, t, lr)
        odd = (p, s) if other is None else other.update(p, g, s, t, lr)

        def pick(kind: Mapping[str, Any], rare: Mapping[str, Any]) -> dict[str, Any]:
            return {n: rare[n] if n in names else a for n, a in kind.items()}

        state = {slot: pick(named, odd[1].get(slot, named)) for slot, named in usual[1].items()}
        return pick(usual[0], odd[0]), state

    return update


def rates(suspect: Suspect) -> Iterator[Guess]:
    """Other step sizes."""
    scene, rule = suspect.scene, suspect.scene.arm.rule
    plan = scene.arm.plan_schedule

    def at(number: Callable[[int], int]) -> Any:
        def rate(step: int, rank: int, lr: float) -> float:
            first = 0 if plan.warmup else 1  # the rise of a warm-up begins at nothing
            return rule.lr * plan.factor(
                min(max(number(step), first), scene.updates), scene.updates
            )

        return rate

    if plan.kind != "constant" or plan.warmup:
        for shift in (-1, 1):
            changed = at(lambda s, d=shift: s + d)
            yield Guess(
                "schedule-counter", by(suspect, rule.update, rate=changed), {"shift": shift}
            )
        constant = lambda s, r, lr: rule.lr  # noqa: E731
        yield Guess("schedule-ignored", by(suspect, rule.update, rate=constant), {})
        epoch = scene.plan.feed(scene.arm, scene.seed).per_epoch
        held = at(lambda s: (s - 1) // epoch * epoch + 1)
        yield Guess("schedule-by-epoch", by(suspect, rule.update, rate=held), {"updates": epoch})
    for lr in (0.1, 0.01, 1e-3):
        if lr != rule.lr:
            value = lambda s, r, was, lr=lr: lr  # noqa: E731
            yield Guess("default-rate", by(suspect, rule.update, rate=value), {"lr": lr})
    if suspect.phase != "update":
        return
    pairs = []
    for step, rank in suspect.looks:
        before, seen, right = (
            scene.weights(step),
            suspect.seen(step, rank),
            suspect.right(step, rank),
        )
        pairs += [(seen[n] - before[n], right[n] - before[n]) for n in right
                  if n in seen and seen[n].shape == right[n].shape]  # fmt: skip
    c = fit(pairs)
    times = lambda s, r, lr: c * lr  # noqa: E731
    yield Guess("scaled-rate", by(suspect, rule.update, rate=times), {"factor": c}, free=1)


def counts(suspect: Suspect) -> Iterator[Guess]:
    """Another number of the update, for rules that correct a bias by it."""
    rule = suspect.scene.arm.rule
    for shift in (1, -1):
        changed = lambda s, r, t, d=shift: t + d  # noqa: E731
        yield Guess("step-counter", by(suspect, rule.update, count=changed), {"shift": shift})
    yield Guess("step-counter", by(suspect, rule.update, count=lambda s, r, t: 1), {"always": 1})


def gradients(suspect: Suspect) -> Iterator[Guess]:
    """Other gradients than those that were recorded."""
    scene, rule = suspect.scene, suspect.scene.arm.rule

    def use(change: Callable[[int, int, Params], Params | None]) -> Callable[[int, int], Arrays]:
        return by(suspect, rule.update, gradients=change)

    def times(c: float) -> Callable[[int, int, Params], Params]:
        return lambda s, r, g: {n: c * a for n, a in g.items()}

    size, ranks = len(scene.batch(suspect.looks[0][0])), len(scene.referee.ranks)
    for factor, what in ((size, "samples"), (ranks, "ranks")):
        if factor > 1:
            yield Guess("sum-not-mean", use(times(factor)), {"factor": what})
    if ranks > 1:
        yield Guess("averaged-twice", use(times(1 / ranks)), {"factor": f"1/{ranks}"})
    yield Guess("flipped-sign", use(times(-1.0)), {"factor": -1})
    for kind in ("float16", "bfloat16"):
        half = lambda s, r, g, k=kind: {n: rounded(a, k) for n, a in g.items()}  # noqa: E731
        yield Guess("half-precision", use(half), {"type": kind, "of": "gradients"})

    def stale(step: int, rank: int, g: Params) -> Params | None:
        if step - 1 not in scene.states:
            return None
        return scene.gradient(step - 1, scene.batch(step - 1))[1]

    yield Guess("stale-gradient", use(stale), {})
    for limit in (0.1, 0.5, 1.0, 5.0):

        def clip(step: int, rank: int, g: Params, limit: float = limit) -> Params:
            norm = float(np.sqrt(sum(np.square(a).sum() for a in g.values())))
            return {n: a * min(1.0, limit / norm) if norm else a for n, a in g.items()}

        yield Guess("clipped-gradient", use(clip), {"norm": limit})

    def dropped(step: int, rank: int, g: Params) -> Params | None:
        index = scene.batch(step)
        return scene.gradient(step, index[:-1])[1] if len(index) > 1 else None

    yield Guess("dropped-samples", use(dropped), {"dropped": "last"})


def precision(suspect: Suspect) -> Iterator[Guess]:
    """Weights kept in half precision."""
    rule = suspect.scene.arm.rule
    for kind in ("float16", "bfloat16"):

        def update(p: Params, g: Params, s: State, t: int, lr: float, kind: str = kind) -> Any:
            new, state = rule.update(p, g, s, t, lr)
            return {n: rounded(a, kind) for n, a in new.items()}, state

        def kept(p: Params, g: Params, s: State, t: int, lr: float, kind: str = kind) -> Any:
            new, state = rule.update(p, g, s, t, lr)
            return new, {k: {n: rounded(a, kind) for n, a in v.items()} for k, v in state.items()}

        yield Guess("half-precision", by(suspect, update), {"type": kind, "of": "weights"})
        yield Guess("half-precision", by(suspect, kept), {"type": kind, "of": "state"})


def unaveraged(suspect: Suspect) -> Iterator[Guess]:
    """Ranks that go on with an update of their own."""
    scene, rule = suspect.scene, suspect.scene.arm.rule
    if len(scene.referee.ranks) == 1 or scene.arm.split is not None:
        return

    def own(step: int, rank: int, g: Params) -> Params | None:
        return (
            scene.gradient(step, scene.part(step, rank))[1] if len(scene.part(step, rank)) else None
        )

    lone = sorted({rank for _, rank in suspect.looks})
    yield Guess("unsynchronised-rank", by(suspect, rule.update, gradients=own), {"ranks": lone})
