"""Training methods: each arm of a run on a backend with its baseline, its verdict and its costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np

from dualml.algorithms.model.spec import ModelSpec
from dualml.common.confusion import macro_average
from dualml.common.words import Messages, numbers
from dualml.experiment.arm import Arm
from dualml.experiment.exactness import ROUNDING_ONLY_SETTINGS
from dualml.experiment.methods import METHODS, MethodInfo
from dualml.experiment.store.manifest import DeviceMemory
from dualml.experiment.store.run import RunData, Serial, Trial
from dualml.experiment.verdict import worst_verdict
from dualml.parallel.zero.units import communication_volume
from dualml.report import ranks
from dualml.report.blocks import Code
from dualml.report.closed_memory import closed_form, sharding_units
from dualml.report.code import count_added_lines, loop_diff
from dualml.report.results import ArmResult

#: Settings in which two training methods of the same task may differ.
METHOD_SETTINGS = (*ROUNDING_ONLY_SETTINGS, "precision", "loss_scale")
#: These settings and those that change the task: a method that differs in one of them is listed
#: with the difference, not ranked.
TASK_SETTINGS = (*METHOD_SETTINGS, "batch_size", "partition", "dealt_to")
#: Target accuracy as a fraction of the baseline's final accuracy.
TARGET = 0.95
PACKAGES = {"torch": "dualml_torch", "mindspore": "dualml_ms"}


def compares_methods(run: RunData) -> bool:
    """Return whether any arm of a run trains by a named method (of a framework or engine) instead
    of dualml's own training."""
    return any(arm.method for arm in run.settings.values())


@dataclass(frozen=True, eq=False)
class MethodResult(ArmResult):
    """A training arm on a backend: its baseline, its verdict, its costs and its code."""

    @property
    def arm_settings(self) -> Arm:
        """Settings of the arm."""
        return self.run.settings[self.arm]

    @property
    def info(self) -> MethodInfo | None:
        """Description of the method, None for dualml's own training and for a method that this
        version does not know."""
        return METHODS.get(self.run.framework(self.backend), {}).get(self.arm_settings.method)

    @property
    def uses_engine_loader(self) -> bool:
        """Whether the engine's data loader partitions the samples."""
        return self.info is not None and self.info.prepared

    def title(self, words: Messages) -> str:
        """Return the method's title in the language of the messages; the title of an engine is the
        same in all languages, and its name if this version does not know it."""
        arm = self.arm_settings
        if arm.method == "single":
            return words("methods.single")
        if arm.method:
            return self.info.title if self.info else arm.method
        return words("methods.ours" if arm.world_size == 1 else "methods.ours_ranks")

    def launcher(self, words: Messages) -> str:
        """Return the launcher that started the ranks: the arm's, or the message that names dualml's
        own; a dash with one rank."""
        alone = self.arm_settings.world_size == 1
        return (
            numbers.NO_VALUE if alone else self.arm_settings.launcher or words("methods.launcher")
        )

    @property
    def precision(self) -> str:
        """Precision of the training, e.g. ``fp32`` or ``bf16``."""
        return self.info.precision if self.info else self.arm_settings.precision

    @property
    def processes(self) -> int:
        """Number of processes that took part in training, the most over the trials; the arm's
        number of ranks without a successful trial."""
        return max((t.processes for t in self.trials), default=self.arm_settings.world_size)

    @cached_property
    def reference(self) -> MethodResult | None:
        """The plain arm (`is_plain`) on the same backend to compare with: one with the same
        batches and partition if there is one, else one with others. None for a plain arm, or
        without any."""
        if is_plain(self.arm_settings):
            return None
        alike = (
            self.run.contrast.partner(self.arm, vary=vary, where=self._is_plain_arm)
            for vary in (METHOD_SETTINGS, TASK_SETTINGS)
        )
        partner = next(filter(None, alike), None)
        return MethodResult(self.run, partner, self.backend) if partner else None

    def _is_plain_arm(self, arm: str) -> bool:
        """Return whether the run's arm of this name is a plain one (`is_plain`)."""
        return is_plain(self.run.settings[arm])

    @cached_property
    def baseline_comparisons(self) -> list[Serial]:
        """Comparisons with the single-process baseline, one per seed. One without a verdict is of
        an arm that follows another rule on purpose."""
        return self._own_comparisons(self.run.serial)

    @cached_property
    def same_precision_comparisons(self) -> list[Serial]:
        """Comparisons of a low-precision method with dualml's own training in the same precision,
        by the envelope of that training, one per seed."""
        return self._own_comparisons(self.run.lowered)

    @property
    def same_precision_verdict(self) -> str:
        """The worst verdict of `same_precision_comparisons`; empty without any."""
        return worst_verdict(s.verdict for s in self.same_precision_comparisons)

    def _own_comparisons(self, among: Sequence[Serial]) -> list[Serial]:
        """Return those of the comparisons that are of this arm and backend."""
        return [s for s in among if (s.arm, s.backend) == (self.arm, self.backend)]

    @cached_property
    def verdict(self) -> str:
        """The worst verdict over the seeds; in another precision than the baseline's the verdict of
        the equivalence test over all seeds. Empty without one."""
        if worst := worst_verdict(s.verdict for s in self.baseline_comparisons):
            return worst
        test = self.equivalence_test
        return "" if test is None else "statistically equal" if test["equivalent"] else "different"

    @property
    def equivalence_test(self) -> Mapping[str, Any] | None:
        """Equivalence test of low-precision accuracies (fractions) with those of float32, with
        ``equivalent``, ``mean``, ``low``, ``high``, ``margin`` and ``seeds``; None without one."""
        tests = (
            s.evidence.get("equivalence")
            for s in self.baseline_comparisons
            if s.reason == "precision"
        )
        return next(filter(None, tests), None)

    # --- what it costs ----------------------------------------------------------------------------

    def _median(self, values: Sequence[float | None]) -> float | None:
        """Return the median of the known values, None if all are None."""
        there = [v for v in values if v is not None]
        return median(there) if there else None

    @cached_property
    def step_quartiles(self) -> tuple[float, float, float] | None:
        """Quartiles of the seconds of an update (25, 50, 75 %), medians over the seeds; None if
        unknown."""
        known = [t.step_s for t in self.trials if len(t.step_s) == 3]
        low, middle, high = np.median(known, axis=0).tolist() if known else (0.0, 0.0, 0.0)
        return (low, middle, high) if known else None

    @property
    def step_ratio(self) -> float | None:
        """Median seconds of an update relative to the baseline's, above 1 if slower; None if
        unknown, and for a plain arm."""
        one = self.reference
        if one is None or self.step_quartiles is None or one.step_quartiles is None:
            return None
        return self.step_quartiles[1] / one.step_quartiles[1]

    @property
    def closed_form_ratio(self) -> float | None:
        """`step_ratio` by the closed form: a backward pass costs two forward passes, and the
        threads of all processes share this work without overhead. None for a plain arm, in another
        precision, whose arithmetic has another speed, or if the number of threads is unknown.

        Source: Narayanan et al. 2021, appendix, for the passes.
        """
        one = self.reference
        if one is None or self.precision != one.precision or not (self.threads and one.threads):
            return None
        passes = (self.info.forwards if self.info else 1) + 2
        return passes / 3 * one.threads / self.threads

    @property
    def threads(self) -> int:
        """Number of threads of all processes, 0 if unknown."""
        usual = str((self.run.environment.get(self.backend) or {}).get("threads", ""))
        told = max((t.threads for t in self.trials if t.threads), default=None)
        return self.processes * (told or (int(usual) if usual.isdecimal() else 0))

    @property
    def target(self) -> float | None:
        """The test accuracy to reach, as a fraction: `TARGET` times the mean of the baseline's (a
        plain arm's own); None if unknown."""
        one = self.reference or self
        return TARGET * one.accuracy.mean if one.accuracy else None

    @cached_property
    def seconds_to_target(self) -> list[float | None]:
        """Training seconds to the target accuracy for each seed; None for seeds that do not reach
        it."""
        return [_seconds_to_target(t, self.target) for t in self.trials]

    @property
    def seconds_to_target_quartiles(self) -> tuple[float, float, float] | None:
        """Quartiles of `seconds_to_target`; None if any seed does not reach the target."""
        seconds = [s for s in self.seconds_to_target if s is not None]
        if not seconds or len(seconds) < len(self.seconds_to_target):
            return None
        low, middle, high = np.percentile(seconds, (25, 50, 75)).tolist()
        return low, middle, high

    @property
    def f1(self) -> float | None:
        """Macro F1, mean over the seeds; None without confusion matrices."""
        tables = [np.array(t.confusion) for t in self.trials if t.confusion]
        return numbers.mean([macro_average(table)[2] for table in tables])

    @property
    def device_bytes(self) -> float | None:
        """Bytes on the device of the rank that uses most (`Trial.device_bytes`), median over the
        seeds; None if unknown."""
        return self._median([t.device_bytes for t in self.trials])

    @property
    def counted_bytes(self) -> float | None:
        """Measured bytes on the rank that uses most memory, median over the seeds; None if
        unknown."""
        return self._median([t.counted_bytes for t in self.trials])

    @cached_property
    def rank_memories(self) -> Sequence[DeviceMemory]:
        """Memory of each rank in the first trial that measured it; empty if none did."""
        return next((t.device_memory for t in self.trials if t.device_memory), ())

    @property
    def fullest_rank(self) -> DeviceMemory | None:
        """Memory of the rank that uses most in the first trial that measured it, None if none
        did."""
        return max(self.rank_memories, key=lambda rank: rank.counted_bytes, default=None)

    @property
    def closed_form_bytes(self) -> float | None:
        """Bytes of weights, gradients and state on rank 0 by the closed form; None without one, or
        if no trial measured its memory."""
        counted = self.rank_memories
        form = closed_form(self.run, self.arm, self.backend, counted) if counted else None
        return form.nbytes if form else None

    @property
    def sent_bytes(self) -> float | None:
        """Bytes sent in an update by the rank that sends most, as measured on the wire, median over
        the seeds; None if unknown."""
        return self._median([t.sent_bytes for t in self.trials])

    @property
    def closed_form_sent_bytes(self) -> float | None:
        """Bytes that a rank sends in an update by the closed form: with ZeRO the volume of its
        collectives, else a multiple of (n - 1)/n of the model's bytes, two for a ring all-reduce;
        None without a closed form or with nothing to send."""
        settings, n = self.arm_settings, self.processes
        if settings.zero:
            units, own = sharding_units(self.run, self.arm), -(-settings.batch_size // n)
            rounds = max(1, -(-own // settings.chunk))
            if units is None or settings.split is not None:
                return None
            each = 2.0 if settings.zero_lower else 4.0
            return each * communication_volume(units, n, settings.sharding, rounds)
        times = self.info.moved if self.info else 2 * (settings.world_size > 1)
        name = settings.variant or str(self.run.experiment.get("model"))
        if name not in self.run.models or not times:
            return None
        size = ModelSpec.restore(dict(self.run.models[name])).nbytes()
        return times * (n - 1) / n * size

    @property
    def epoch_updates(self) -> float | None:
        """Number of updates in one pass over the data, rounded, from the first trial; None if
        unknown."""
        t = self.trials[0] if self.trials else None
        size = self.run.train_size
        if t is None or not t.updates or not t.sample_gradients or not size:
            return None
        return float(round(t.updates * size / t.sample_gradients))

    # --- its code ---------------------------------------------------------------------------------

    @cached_property
    def code(self) -> Code | None:
        """The method's file as a diff from ``single``, all lines of ``single`` itself; None if the
        backend does not support it or its package is not installed, and for dualml's own training
        and unknown methods."""
        if self.info is None or self.info.unsupported:
            return None
        package = PACKAGES.get(self.run.framework(self.backend), "")
        return loop_diff(package, self.info.file or self.info.name, self.info.title)

    @property
    def changed_lines(self) -> int | None:
        """Number of lines of code added to ``single``, 0 for ``single`` itself; None if there is no
        `code`."""
        return None if self.code is None else count_added_lines(self.code)


def is_plain(arm: Arm) -> bool:
    """Return whether an arm is dualml's own training in one process, in float32."""
    alone = arm.kind == "train" and arm.world_size == 1
    return alone and not arm.method and arm.precision == "fp32"


def method_results(run: RunData, *, ok: bool = True) -> list[MethodResult]:
    """Return every training arm on every backend, by arm, then by backend, that has a successful
    trial or, unless ``ok``, any trial."""
    places = [
        (t.arm, t.backend)
        for arm in ranks.training_arms(run)
        for b in run.backends
        for t in run.select(arm, b, ok=ok)
    ]
    return [MethodResult(run, *place) for place in dict.fromkeys(places)]


def _seconds_to_target(t: Trial, target: float | None) -> float | None:
    """Return the training seconds at the first evaluation that reaches the target accuracy, else
    None."""
    curve = t.curves.get("test_accuracy")
    if target is None or curve is None:
        return None
    at = np.flatnonzero(curve.value >= target)
    return float(curve.seconds[at[0]]) if len(at) else None
