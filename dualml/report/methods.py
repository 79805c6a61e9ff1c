"""The arms of a run as ways to train: what each is, what it was held against, what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np

from dualml.confusion import macro
from dualml.experiment.arm import Arm
from dualml.experiment.exact import HOW
from dualml.methods import METHODS, MethodInfo
from dualml.model.spec import ModelSpec
from dualml.report import ranks
from dualml.report.blocks import Code
from dualml.report.closed_memory import closed_form, units_in
from dualml.report.code import change_of_loop, new_lines
from dualml.report.results import Result
from dualml.store.manifest import DeviceMemory
from dualml.store.run import Run, Serial, Trial
from dualml.store.verdicts import VERDICTS
from dualml.words import Words, numbers
from dualml.zero.units import moved

#: What may differ between two ways to train the same model, and what differs where one of them is
#: held to another task: then it is named, with what it did in place of what.
WAYS = (*HOW, "precision", "loss_scale")
TASKS = (*WAYS, "batch_size", "partition", "dealt_to")
#: Of the accuracy that the reference ends with: the first evaluation that reaches it counts.
TARGET = 0.95
PACKAGES = {"torch": "dualml_torch", "mindspore": "dualml_ms"}


def about(run: Run) -> bool:
    """Whether a run compares methods."""
    return any(arm.method for arm in run.settings.values())


@dataclass(frozen=True, eq=False)
class Way(Result):
    """An arm on a backend."""

    @property
    def arm_settings(self) -> Arm:
        return self.run.settings[self.arm]

    @property
    def info(self) -> MethodInfo | None:
        """What is known of its method; None of dualml's own training."""
        return METHODS.get(self.run.framework(self.backend), {}).get(self.arm_settings.method)

    @property
    def prepared(self) -> bool:
        """Whether its engine's loader deals the samples out."""
        return self.info is not None and self.info.prepared

    def title(self, words: Words) -> str:
        arm = self.arm_settings
        if arm.method == "single":
            return words("methods.single")
        if arm.method:
            return self.info.title if self.info else arm.method
        return words("methods.ours" if arm.world_size == 1 else "methods.ours_ranks")

    def launcher(self, words: Words) -> str:
        alone = self.arm_settings.world_size == 1
        return numbers.NONE if alone else self.arm_settings.launcher or words("methods.launcher")

    @property
    def precision(self) -> str:
        return self.info.precision if self.info else self.arm_settings.precision

    @property
    def processes(self) -> int:
        """That trained."""
        return max((t.processes for t in self.trials), default=self.arm_settings.world_size)

    @cached_property
    def reference(self) -> Way | None:
        """The plain arm with one process on the same backend, if there is one with the same batches
        that; None of a plain arm."""
        if plain(self.arm_settings):
            return None
        alike = (
            self.run.contrast.partner(self.arm, vary=vary, where=self._plain)
            for vary in (WAYS, TASKS)
        )
        partner = next(filter(None, alike), None)
        return Way(self.run, partner, self.backend) if partner else None

    def _plain(self, arm: str) -> bool:
        return plain(self.run.settings[arm])

    @cached_property
    def judged(self) -> list[Serial]:
        return self._own(self.run.serial)

    @cached_property
    def lowered(self) -> list[Serial]:
        """Of a method in a lower precision: against our own training in it, by its envelope."""
        return self._own(self.run.lowered)

    def _own(self, among: Sequence[Serial]) -> list[Serial]:
        return [s for s in among if (s.arm, s.backend) == (self.arm, self.backend)]

    @cached_property
    def verdict(self) -> str:
        """The worst over the seeds; of a method with another precision that of the seeds together;
        empty without one."""
        if worst := worst_of(self.judged):
            return worst
        test = self.over_seeds
        return "" if test is None else "statistically equal" if test["equivalent"] else "different"

    @property
    def over_seeds(self) -> Mapping[str, Any] | None:
        """Of a lower precision: the test of its accuracies against those of float32."""
        tests = (s.evidence.get("equivalence") for s in self.judged if s.reason == "precision")
        return next(filter(None, tests), None)

    # --- what it costs ----------------------------------------------------------------------------

    def _median(self, values: Sequence[float | None]) -> float | None:
        there = [v for v in values if v is not None]
        return median(there) if there else None

    @cached_property
    def steps_s(self) -> tuple[float, float, float] | None:
        """Quartiles of the seconds of an update: medians over the seeds."""
        known = [t.step_s for t in self.trials if len(t.step_s) == 3]
        low, middle, high = np.median(known, axis=0).tolist() if known else (0.0, 0.0, 0.0)
        return (low, middle, high) if known else None

    @property
    def ratio(self) -> float | None:
        """Of an update's seconds to the reference's."""
        one = self.reference
        if one is None or self.steps_s is None or one.steps_s is None:
            return None
        return self.steps_s[1] / one.steps_s[1]

    @property
    def closed_ratio(self) -> float | None:
        """`ratio` by the closed form: a backward pass costs two forward passes, and all threads of
        all processes share them for nothing; None in another precision, whose arithmetic has
        another speed, and where the threads are not known.

        Source: Narayanan et al. 2021, appendix, for the passes."""
        one = self.reference
        if one is None or self.precision != one.precision or not (self.threads and one.threads):
            return None
        passes = (self.info.forwards if self.info else 1) + 2
        return passes / 3 * one.threads / self.threads

    @property
    def threads(self) -> int:
        """Of all processes; 0: not known."""
        usual = str((self.run.environment.get(self.backend) or {}).get("threads", ""))
        told = max((t.threads for t in self.trials if t.threads), default=None)
        return self.processes * (told or (int(usual) if usual.isdecimal() else 0))

    @property
    def target(self) -> float | None:
        """The accuracy that counts as reached."""
        one = self.reference or self
        return TARGET * one.accuracy.mean if one.accuracy else None

    @cached_property
    def reached(self) -> list[float | None]:
        """Seconds of training to the target, of each seed; None where it is not reached."""
        return [_reached(t, self.target) for t in self.trials]

    @property
    def reached_s(self) -> tuple[float, float, float] | None:
        """Their quartiles; None if one seed does not reach it."""
        seconds = [s for s in self.reached if s is not None]
        if not seconds or len(seconds) < len(self.reached):
            return None
        low, middle, high = np.percentile(seconds, (25, 50, 75)).tolist()
        return low, middle, high

    @property
    def f1(self) -> float | None:
        """Macro F1, mean over the seeds."""
        tables = [np.array(t.confusion) for t in self.trials if t.confusion]
        return numbers.mean([macro(table)[2] for table in tables])

    @property
    def held(self) -> float | None:
        """Bytes on the device of the rank that needs most: `Trial.device_bytes`."""
        return self._median([t.device_bytes for t in self.trials])

    @property
    def counted(self) -> float | None:
        """Of it what was seen."""
        return self._median([t.counted_bytes for t in self.trials])

    @cached_property
    def ranks_memory(self) -> Sequence[DeviceMemory]:
        """Of each rank of the first trial that counted."""
        return next((t.device_memory for t in self.trials if t.device_memory), ())

    @property
    def most_memory(self) -> DeviceMemory | None:
        """Of the rank that needs most."""
        return max(self.ranks_memory, key=lambda rank: rank.counted, default=None)

    @property
    def closed_held(self) -> float | None:
        """Bytes of weights, gradients and state by the closed form."""
        counted = self.ranks_memory
        form = closed_form(self.run, self.arm, self.backend, counted) if counted else None
        return form.nbytes if form else None

    @property
    def sent(self) -> float | None:
        return self._median([t.sent_bytes for t in self.trials])

    @property
    def closed(self) -> float | None:
        """Bytes that a rank sends in an update by the closed form: so many times (n - 1)/n of the
        model's, two for an all-reduce by a ring; None where none is known."""
        settings, n = self.arm_settings, self.processes
        if settings.zero:
            units, own = units_in(self.run, self.arm), -(-settings.batch_size // n)
            rounds = max(1, -(-own // settings.chunk))
            if units is None or settings.split is not None:
                return None
            each = 2.0 if settings.zero_lower else 4.0
            return each * moved(units, n, settings.sharding, rounds)
        times = self.info.moved if self.info else 2 * (settings.world_size > 1)
        name = settings.variant or str(self.run.experiment.get("model"))
        if name not in self.run.models or not times:
            return None
        size = ModelSpec.restore(dict(self.run.models[name])).nbytes()
        return times * (n - 1) / n * size

    @property
    def epoch_updates(self) -> float | None:
        """Updates of one pass over the data."""
        t = self.trials[0] if self.trials else None
        size = self.run.train_size
        if t is None or not t.updates or not t.sample_gradients or not size:
            return None
        return float(round(t.updates * size / t.sample_gradients))

    # --- its code ---------------------------------------------------------------------------------

    @cached_property
    def code(self) -> Code | None:
        """Its file as a change of ``single``, with the lines around each change."""
        if self.info is None or self.info.unsupported:
            return None
        package = PACKAGES.get(self.run.framework(self.backend), "")
        return change_of_loop(package, self.info.file or self.info.name, self.info.title)

    @property
    def changed(self) -> int | None:
        """Lines of code that are new or other than in ``single``."""
        return None if self.code is None else new_lines(self.code)


def worst_of(judged: Sequence[Serial]) -> str:
    """Of the verdicts of the seeds; empty without any."""
    return max((s.verdict for s in judged if s.verdict), key=VERDICTS.index, default="")


def plain(arm: Arm) -> bool:
    """dualml's own training in one process, in float32."""
    alone = arm.kind == "train" and arm.world_size == 1
    return alone and not arm.method and arm.precision == "fp32"


def ways(run: Run, *, ok: bool = True) -> list[Way]:
    """Every training arm on every backend, where it ran or, unless ``ok``, was to."""
    places = [(t.arm, t.backend) for arm in ranks.training(run)
              for b in run.backends for t in run.select(arm, b, ok=ok)]  # fmt: skip
    return [Way(run, *place) for place in dict.fromkeys(places)]


def _reached(t: Trial, target: float | None) -> float | None:
    curve = t.curves.get("test_accuracy")
    if target is None or curve is None:
        return None
    at = np.flatnonzero(curve.value >= target)
    return float(curve.seconds[at[0]]) if len(at) else None
