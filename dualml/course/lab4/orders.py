"""Requirements on a pipeline schedule: complete, possible, fast, and saving memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.exercise import Answer, Difference, ExerciseCall, Requirement
from dualml.course.mistakes import mistake_groups

#: Time units of a forward and of a backward pass.
FORWARD, BACKWARD = 1, 2
Order = list[tuple[int, int]]
(FLAGS,) = mistake_groups("lab4", "orders")


def make_schedule(stages: int, count: int, kind: str, flag: str = "") -> list[Order]:
    """Return the passes of every stage, (0 forward or 1 backward, micro-batch), for ``count``
    micro-batches, with the mistake ``flag`` or none; a flag that makes no such schedule changes
    nothing."""
    kind = {"order_gpipe_for_1f1b": "gpipe", "order_1f1b_for_gpipe": "1f1b"}.get(flag, kind)
    if flag == "order_naive":
        return [[(way, m) for m in range(count) for way in (0, 1)] for _ in range(stages)]
    orders = []
    for stage in range(stages):
        ahead = stages - stage - 1
        ahead = {
            "warm_up_long": ahead + 1,
            "warm_up_short": max(0, ahead - 1),
            "warm_up_reversed": stage,
        }.get(flag, ahead)
        ahead = count if kind == "gpipe" else min(ahead, count)
        order = [(0, m) for m in range(ahead)]
        back = range(count)[::-1] if flag == "order_backward_reversed" else range(count)
        for m, b in zip(range(count), back, strict=True):
            if ahead + m < count:
                order.append((0, ahead + m))
            order.append((1, b))
        orders.append(order[:-1] if flag == "order_last_missing" else order)
    return orders


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

    def calls(self, draw: np.random.Generator) -> list[ExerciseCall]:
        """Make three calls with more micro-batches than stages, one with fewer, and one with a
        single stage."""
        sizes = []
        for _ in range(3):
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
        # What it is named by must tell it apart: with one stage all orders are alike.
        for flag in self.flags if p > 1 else ():
            if make_schedule(p, count, self.kind, flag) == orders:
                return difference, (flag,)
        return difference, (general,)

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
