"""Requirements on a pipeline schedule: complete, possible, fast, and saving memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.exercise import Answer, Difference, ExerciseCall, Requirement
from dualml.course.mistakes import mistake_groups
from dualml.course.places import flags_at, place_flags

#: Time units of a forward and of a backward pass.
FORWARD, BACKWARD = 1, 2
Order = list[tuple[int, int]]
(FLAGS,) = mistake_groups("lab4", "orders")
#: Stages in which a mistake may act alone.
PLACES = ("stage=0", "stage=-1", "stage=!0", "stage=!-1", "stage=1")
#: Patterns of errors, and the mistakes that they show.
ERRORS = ((r"schedule\(…\)", "order_no_pairs"),)


def make_schedule(stages: int, count: int, kind: str, flag: str = "") -> list[Order]:
    """Return the passes of every stage, (0 forward or 1 backward, micro-batch), by the schedule
    ``kind``, ``gpipe`` or ``1f1b``, for ``count`` micro-batches, with the mistake ``flag`` or none;
    a flag that means nothing for this kind changes nothing."""
    return [make_order(stages, stage, count, kind, flag) for stage in range(stages)]


def make_order(stages: int, stage: int, count: int, kind: str, flag: str) -> Order:
    """Return the passes of one stage, as `make_schedule` does for all of them."""
    kind = {"order_gpipe_for_1f1b": "gpipe", "order_1f1b_for_gpipe": "1f1b"}.get(flag, kind)
    own = range(count)
    if flag == "order_naive":
        return [(way, m) for m in own for way in (0, 1)]
    if flag == "order_backward_first":
        return [(way, m) for way in (1, 0) for m in own]
    if flag in SINGLE_DIRECTION:
        return [(SINGLE_DIRECTION[flag], m) for m in own]
    ahead = count if kind == "gpipe" else warm_up(stages, stage, count, flag)
    forward, back = [(0, m) for m in own], [(1, m) for m in own]
    first, steady = forward[:ahead], forward[ahead:]
    if flag == "warm_up_unlimited":
        first = [(0, m) for m in range(ahead)]
    if flag == "order_forward_restarts":
        steady = [(0, m) for m in range(len(steady))]
    if flag == "order_forward_too_many":
        steady = [(0, ahead + m) for m in own]
    rest = back[len(steady) :]
    if flag == "order_backward_restarts":
        rest = [(1, m) for m in range(len(rest))]
    if flag == "order_backward_reversed":
        back = back[::-1]
        rest = back[len(steady) :]
    if flag == "order_backward_newest" and kind != "gpipe":
        back = [(1, m) for _, m in steady]
        rest = [(1, m) for m in range(len(first))]
    if flag == "order_cool_down_reversed" and kind != "gpipe":
        rest = rest[::-1]
    turns = list(zip(steady, back, strict=False))
    if flag == "order_steady_reversed":
        turns = [(b, f) for f, b in turns]
    order = [*first, *(one for turn in turns for one in turn), *rest]
    if flag == "order_cool_down_missing":
        return order[: len(order) - len(rest)]
    if flag == "order_from_one":
        return [(way, m + 1) for way, m in order]
    return order[:-1] if flag == "order_last_missing" else order


#: Mistake → the only way that a stage goes: 0 forward, 1 backward.
SINGLE_DIRECTION = {"order_backward_missing": 0, "order_forward_missing": 1}


def warm_up(stages: int, stage: int, count: int, flag: str) -> int:
    """Return the number of forward passes with which a stage of 1F1B begins, with the mistake
    ``flag`` or none."""
    right = stages - stage - 1
    ahead = {
        "warm_up_long": right + 1,
        "warm_up_long#2": right + 2,
        "warm_up_short": max(0, right - 1),
        "warm_up_reversed": stage,
        "warm_up_same": stages - 1,
        "warm_up_same#2": stages,
        "warm_up_same#3": 1,
        "warm_up_double": 2 * right,
        "warm_up_double#2": 2 * right + 1,
    }.get(flag, right)
    return ahead if flag == "warm_up_unlimited" else min(ahead, count)


def makespan(orders: Sequence[Order]) -> int | None:
    """Return the time units until the last pass has ended; None for a deadlock."""
    begun = start_times(orders)
    if begun is None:
        return None
    return max(time + (BACKWARD if way else FORWARD) for (way, _, _), time in begun.items())


def start_times(orders: Sequence[Order]) -> dict[tuple[int, int, int], int] | None:
    """Return (way, stage, micro-batch) → start time of the pass, each as early as possible; None
    for a deadlock."""
    begun: dict[tuple[int, int, int], int] = {}
    done: dict[tuple[int, int, int], int] = {}
    at, free = [0] * len(orders), [0] * len(orders)
    moved = True
    while moved:
        moved = False
        for stage, order in enumerate(orders):
            while at[stage] < len(order):
                way, m = order[at[stage]]
                last = len(orders) - 1
                if way == 0:
                    needs = (0, stage - 1, m) if stage else None
                else:
                    needs = (1, stage + 1, m) if stage < last else (0, stage, m)
                own = (0, stage, m) if way else None
                if any(n is not None and n not in done for n in (needs, own)):
                    break
                begin = max(free[stage], done[needs] if needs else 0, done[own] if own else 0)
                begun[way, stage, m] = begin
                free[stage] = done[way, stage, m] = begin + (BACKWARD if way else FORWARD)
                at[stage] += 1
                moved = True
    return begun if all(n == len(o) for n, o in zip(at, orders, strict=True)) else None


def max_in_flight(order: Order) -> int:
    """Return the largest number of micro-batches whose activations a stage keeps at a time."""
    now = most = 0
    for way, _ in order:
        now += 1 if way == 0 else -1
        most = max(most, now)
    return most


@dataclass
class ScheduleRequirement(Requirement):
    """Requirement on schedules of several sizes.

    Attributes:
        kind: ``gpipe`` or ``1f1b``.
        aspect: ``complete``, ``possible``, ``shape`` (gpipe: all forward passes first; 1f1b:
            micro-batches in flight) or ``time``.
    """

    name: str
    kind: str
    aspect: str
    target: str = "schedule"
    flags: Sequence[str] = FLAGS
    errors: Sequence[tuple[str, str]] = ERRORS

    def calls(self, draw: np.random.Generator) -> list[ExerciseCall]:
        """Make three calls with more micro-batches than stages, the first with so many stages that
        mistakes differ in it, one with fewer micro-batches, and one with a single stage."""
        many = int(draw.integers(4, 6))
        sizes = [(many, many + int(draw.integers(2, 5)))]
        for _ in range(2):
            stages = int(draw.integers(2, 6))
            sizes.append((stages, stages + int(draw.integers(1, 5))))
        sizes += [(4, 2), (1, int(draw.integers(1, 5)))]
        return [
            ExerciseCall(
                "orders", self.target, {"stages": p, "micro_batches": m, "kind": self.kind}, [{}]
            )
            for p, m in sizes
        ]

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first violation, and the mistake whose schedule the answer is, else the kind
        of violation; None if there is none."""
        p, count = call.options["stages"], call.options["micro_batches"]
        arrays = answer.arrays[0]
        if int(arrays["stages"]) != p:
            return Difference(0, "stages", None, int(arrays["stages"]), p), ("order_stages",)
        orders = [[(int(a), int(b)) for a, b in arrays[str(s)]] for s in range(p)]
        found = self.find_violation(orders, p, count)
        if found is None:
            return None
        difference, general = found
        return difference, self.name_mistake(orders, p, count) or (general,)

    def name_mistake(self, orders: list[Order], p: int, count: int) -> tuple[str, ...]:
        """Return the mistake whose schedule this is, or one that acts in the first or the last
        stage alone, in all but it, or in some stages; empty if there is none, and for one or two
        stages, in which many mistakes are alike."""
        right = make_schedule(p, count, self.kind)
        if p < 3 or orders == right:
            return ()
        for name in (*self.flags, *place_flags(self.flags, PLACES)):
            wrong = make_schedule(p, count, self.kind, name.partition("@")[0])
            acts = [bool(flags_at(frozenset({name}), stage=(s, p))) for s in range(p)]
            made = [w if bad else r for bad, w, r in zip(acts, wrong, right, strict=True)]
            if made == orders:
                return (name,)
        for name in self.flags:
            wrong = make_schedule(p, count, self.kind, name)
            if all(one in both for one, *both in zip(orders, wrong, right, strict=True)):
                return (name,)
        return ()

    def find_violation(
        self, orders: list[Order], p: int, count: int
    ) -> tuple[Difference, str] | None:
        """Return the first violation in the orders of ``p`` stages and ``count`` micro-batches, and
        the kind of mistake; None if there is none. Completeness is always checked, then
        possibility, then ``shape`` or ``time``, as far as ``aspect`` asks."""
        every = {(way, m) for way in (0, 1) for m in range(count)}
        for s, order in enumerate(orders):
            if set(order) != every:
                lacks = sorted(every - set(order)) or sorted(set(order) - every)
                way, m = lacks[0]
                where = f"stage {s}, {'FB'[way] if way in (0, 1) else '?'}{m}"
                seen = order.count(lacks[0])
                return Difference(0, where, None, seen, 1 - seen), "order_incomplete"
            if len(order) != len(every):
                return Difference(0, f"stage {s}", None, len(order), len(every)), "order_twice"
        if self.aspect == "complete":
            return None
        time = makespan(orders)
        if time is None:
            return Difference(0, "passes", None, "deadlock", "end"), "order_impossible"
        if self.aspect == "possible":
            return None
        if self.aspect == "shape":
            for s, order in enumerate(orders):
                most = count if self.kind == "gpipe" else min(p - s, count)
                early = self.kind == "gpipe" and any(way for way, _ in order[:count])
                off = Difference(0, f"stage {s}", None, max_in_flight(order), most)
                if max_in_flight(order) > most or early:
                    return off, "order_1f1b_for_gpipe" if early else "order_kept_too_long"
            return None
        best = (count + p - 1) * (FORWARD + BACKWARD)
        return None if time <= best else (Difference(0, "time", None, time, best), "order_slow")

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return the numbers of stages p and of micro-batches m."""
        return {"p": call.options["stages"], "m": call.options["micro_batches"]}


def schedule_requirements() -> list[Requirement]:
    """Return the requirements on `schedule`."""
    return [
        ScheduleRequirement(f"schedule.{kind}.{looks}", kind, looks)
        for kind in ("gpipe", "1f1b")
        for looks in ("complete", "possible", "shape", "time")
    ]
