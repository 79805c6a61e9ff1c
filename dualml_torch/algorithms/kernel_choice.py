"""Memory format and compilation of a trial on this CPU, chosen by measurement.

Which memory format is faster depends on the model, the batch size and the processor, and so does
the gain of compilation. Both change rounding, so a choice must be stable: times are measured once
per model, batch size and number of threads, and stored in the cache folder; every trial of this
machine, including resumed ones, decides by the same times.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dualml.algorithms.optim import OptimizerSpec
from dualml.backend import TrainingSpec
from dualml.common import machine
from dualml.common.errors import UserError
from dualml.common.files import read_json, write_json
from dualml_torch.algorithms.optim import optimizer
from dualml_torch.algorithms.recorded_gradient import Loss, RecordedGradient
from dualml_torch.common.environ import COMPILE, MEMORY_FORMAT

CONTIGUOUS, CHANNELS_LAST = "contiguous_format", "channels_last"
FORMATS = (CONTIGUOUS, CHANNELS_LAST)
#: Smallest speed-up over the plain choice that counts; less is noise.
WORTH_IT = 1.03
#: Seconds of remaining training below which compilation is not even measured.
MIN_COMPILED_S = 30.0
#: Smallest ratio of the time that compilation saves to the time it takes.
PAYS = 2.0
#: Milliseconds of one measurement.
MEASUREMENT_MS = 150.0

#: Keys of a comparison with compiled kernels that has not failed.
COMPARED = {"recorded", "compiled", "seconds"}
Times = dict[str, Any]
Work = Callable[[], object]
Batch = tuple[Sequence[Tensor], Tensor]


@dataclass(frozen=True)
class KernelChoice:
    """The kernels that a training uses, and the reason.

    Attributes:
        memory_format: memory format of images and kernels.
        compiled: whether the gradients of batches of the usual size, and the update, are compiled.
        reason: one sentence.
    """

    memory_format: str
    compiled: bool
    reason: str

    def environment_facts(self) -> dict[str, str]:
        """Return the choice as texts for the environment of a run: ``memory_format``, ``kernels``
        and ``kernels_reason``."""
        return {
            "memory_format": self.memory_format,
            "kernels": "compiled" if self.compiled else "as recorded",
            "kernels_reason": self.reason,
        }


def choose_kernels(
    recipe: TrainingSpec, network: nn.Module, loss: Loss, batch: Batch | None
) -> KernelChoice:
    """Choose memory format and compilation, each by the user's setting, else by stored times or a
    new measurement (one second; up to a minute with compilation), which is then stored in the cache
    folder.

    A format is chosen only for a model of images. Nothing is compiled in low precision, with
    recomputation or without ``batch``, even if the user asked for it.

    Args:
        network: on a CPU; left as it is.
        batch: inputs and labels of the usual size; None: unknown, nothing is measured.

    Raises:
        UserError: `MEMORY_FORMAT` or `COMPILE` has an invalid value, or compilation was requested
            and fails.
    """
    wanted, compiling = (
        read_setting(MEMORY_FORMAT, FORMATS),
        read_setting(COMPILE, ("never", "always")),
    )
    if recipe.precision.is_low or recipe.recompute:
        # The compiler keeps float32 where the rule rounds, and activations to be recomputed.
        compiling = "never"
    images = any(p.dim() == 4 for p in network.parameters())
    formats = FORMATS if images else FORMATS[:1]
    if wanted and images:
        formats = (wanted,)
    if batch is None or (compiling == "never" and len(formats) == 1):
        return KernelChoice(
            formats[0], False, "set by the user" if wanted else "nothing was measured"
        )
    path = times_path(recipe, batch)
    times = load_times(path)
    if not times.keys() >= set(formats):
        times = save_times(
            path,
            times
            | time_in_turns({f: make_gradient_work(network, loss, f, batch) for f in formats}),
        )
    plain = formats[0]
    best = next((f for f in formats if times[plain] > WORTH_IT * times[f]), plain)
    reason = ", ".join(f"{name} {times[name]:.3g} ms" for name in formats)
    if compiling == "never":
        return KernelChoice(best, False, f"{reason}; compiling is off")
    if compiling != "always" and times[best] * recipe.updates / 1e3 < MIN_COMPILED_S:
        return KernelChoice(best, False, f"{reason}; too short to compile for")
    name = f"{best}, {replace(recipe.rule, lr=1.0)}"
    if name not in times:
        makers = {
            kernels: partial(
                make_update_work, recipe.rule, network, loss, best, batch, kernels == "compiled"
            )
            for kernels in ("recorded", "compiled")
        }
        times = save_times(path, times | {name: compare_compiled(**makers)})
    return decide_compilation(best, times[name], reason, recipe.updates, compiling == "always")


def decide_compilation(
    best: str, times: Times, reason: str, updates: int, always: bool
) -> KernelChoice:
    """Return the choice of the memory format ``best``, compiled if the time saved over ``updates``
    is more than `PAYS` times the compilation time and an update at least `WORTH_IT` times as fast,
    or if ``always``.

    Args:
        times: the result of `compare_compiled`; after a failure nothing is compiled.
        reason: the choice's reason so far, to which the times are added.

    Raises:
        UserError: compilation is set to ``always`` and has failed.
    """
    if "failed" in times:
        if always:
            raise UserError(
                f"{COMPILE}=always, but compiling failed: {times['failed']}; leave it unset, or "
                "install a C++ compiler such as g++ where there is none"
            )
        return KernelChoice(best, False, f"{reason}; compiling failed: {times['failed']}")
    before, after, seconds = times["recorded"], times["compiled"], times["seconds"]
    reason = f"{reason}; compiled in {seconds:.1f} s: {before:.3g} ms, then {after:.3g} ms"
    pays = (before - after) * updates / 1e3 > PAYS * seconds and before > WORTH_IT * after
    return KernelChoice(best, always or pays, reason)


def read_setting(variable: str, values: Sequence[str]) -> str:
    """Return the user's value of an environment variable; an empty string if it is unset.
    UserError: a value that is not among ``values``."""
    value = os.environ.get(variable, "")
    if value and value not in values:
        raise UserError(f"{variable} is {' or '.join(values)}, or unset; received {value!r}")
    return value


def copy_network(network: nn.Module, memory_format: str) -> nn.Module:
    """Return a deep copy of the network in a memory format, one of `FORMATS`."""
    network = copy.deepcopy(network)
    return network.to(memory_format=getattr(torch, memory_format))  # type: ignore[call-overload, no-any-return]


def make_gradient_work(network: nn.Module, loss: Loss, memory_format: str, batch: Batch) -> Work:
    """Return a function that computes the gradients of a batch by a recorded, uncompiled copy of
    the network in a memory format, for timing; no ``grad`` is written."""
    return partial(RecordedGradient(copy_network(network, memory_format), loss).gradient, *batch)


def make_update_work(
    rule: OptimizerSpec,
    network: nn.Module,
    loss: Loss,
    memory_format: str,
    batch: Batch,
    compiled: bool,
) -> Work:
    """Return a function that makes one whole update (gradients and optimizer) per call, of a copy
    of the network on the same batch, compiled if asked for, for timing; the network itself stays
    as it is."""
    network = copy_network(network, memory_format)
    recorded = RecordedGradient(network, loss, compiled=len(batch[1]) * compiled)
    rules = optimizer(rule, network.parameters(), compiled=compiled)

    def run_update() -> None:
        for parameter in network.parameters():
            parameter.grad = None
        recorded(*batch, 1.0)
        rules.advance()

    return run_update


def compare_compiled(recorded: Callable[[], Work], compiled: Callable[[], Work]) -> Times:
    """Return the milliseconds of an update ``recorded`` and ``compiled`` and the ``seconds`` of
    compilation, by these names; if compilation fails, only ``failed``, with the error's first
    line."""
    begin = time.perf_counter()
    try:
        fast = compiled()
        fast()
    except Exception as error:  # any failure of the compiler: continue without it
        return {"failed": f"{error}".strip().partition("\n")[0][:200]}
    seconds = time.perf_counter() - begin
    return {**time_in_turns({"recorded": recorded(), "compiled": fast}), "seconds": seconds}


def time_in_turns(variants: Mapping[str, Work]) -> Times:
    """Return each variant's smallest milliseconds of one call, after a first call that does not
    count; they run in turns, 5 to 100 times: disturbances only add time."""
    for work in variants.values():
        work()
    best: dict[str, float] = {}
    begin = time.perf_counter()
    for number in range(100):
        for name, work in variants.items():
            start = time.perf_counter()
            work()
            spent = (time.perf_counter() - start) * 1e3
            best[name] = min(spent, best.get(name, spent))
        if number >= 4 and (time.perf_counter() - begin) * 1e3 > MEASUREMENT_MS * len(variants):
            break
    return best


def times_path(recipe: TrainingSpec, batch: Batch) -> Path | None:
    """Return the file of the stored times of this model, loss, batch size, number of threads,
    processor and torch version; it may not exist. None if there is no cache folder."""
    spec, threads = recipe.spec, torch.get_num_threads()
    versions = torch.__version__, torch.backends.cpu.get_cpu_capability(), machine.cpu_model()
    compiler = any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++")))
    parts = [*versions, threads, compiler, repr(spec), recipe.loss, len(batch[1])]
    parts += [recipe.precision.type] if recipe.precision.is_low else []
    parts += [recipe.recompute] if recipe.recompute else []
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    try:
        return machine.cache_dir() / f"torch-kernels-{key}.json"
    except (ImportError, OSError, RuntimeError):
        return None


def load_times(path: Path | None) -> Times:
    """Return the stored times; an empty dict without a path, or if the file is missing or
    damaged."""
    try:
        times = read_json(path) if path else {}
        formats = [times[name] > 0 for name in times if name in FORMATS]
        others = [{*times[name]} for name in times if name not in FORMATS]
        whole = all(formats) and all("failed" in keys or keys >= COMPARED for keys in others)
        return dict(times) if whole else {}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def save_times(path: Path | None, times: Times) -> Times:
    """Store times and return them merged with those in the file, which another process stored first
    and which win; if the file cannot be written, they hold for this trial only."""
    times = times | load_times(path)
    try:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, times)
    except OSError:
        pass
    return times
