"""How a trial computes on this CPU where results differ by rounding alone: measured, not guessed.

Which memory format is faster depends on the model, the size of the batch and the processor, and so
does what compiling gains. Both round differently, so that a choice has to stand: the times are
measured once for a model, a size of its batches and a number of threads, and kept in the cache
folder; every trial of this machine, and every one that is resumed, judges by the same times.
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

from dualml import machine
from dualml.backend import Recipe
from dualml.errors import UserError
from dualml.files import read_json, write_json
from dualml.optim import Rule
from dualml_torch.environ import COMPILE, MEMORY_FORMAT
from dualml_torch.optim import optimizer
from dualml_torch.recorded import Loss, Recorded

CONTIGUOUS, CHANNELS_LAST = "contiguous_format", "channels_last"
FORMATS = (CONTIGUOUS, CHANNELS_LAST)
#: How many times faster a choice must be than the plain one before it is used; less is noise.
WORTH_IT = 1.03
#: Minimum seconds of remaining training for which a trial measures whether compiling pays.
LONG = 30.0
#: How many times over what compiling saves must pay for the seconds it takes.
PAYS = 2.0
#: Milliseconds of one measurement.
ENOUGH = 150.0

#: What a comparison with compiled kernels gives, unless it failed.
COMPARED = {"recorded", "compiled", "seconds"}
Times = dict[str, Any]
Work = Callable[[], object]
Batch = tuple[Sequence[Tensor], Tensor]


@dataclass(frozen=True)
class Choice:
    """What a training uses, and why.

    Attributes:
        memory_format: of images and kernels.
        compiled: whether the gradients of batches of the usual size, and the update, are.
        reason: one sentence.
    """

    memory_format: str
    compiled: bool
    reason: str

    def facts(self) -> dict[str, str]:
        """For the environment of a run."""
        return {
            "memory_format": self.memory_format,
            "kernels": "compiled" if self.compiled else "as recorded",
            "kernels_reason": self.reason,
        }


def choose(recipe: Recipe, network: nn.Module, loss: Loss, batch: Batch | None) -> Choice:
    """The user's choice, the one by kept times, or that of a new measurement (a second; with
    compiling up to a minute).

    Args:
        network: on a CPU; left as it is.
        batch: inputs and labels of the usual size; None: unknown, nothing is measured.

    Raises:
        UserError: `MEMORY_FORMAT` or `COMPILE` is set to something else, or compiling was asked
            for and fails.
    """
    wanted, compiling = setting(MEMORY_FORMAT, FORMATS), setting(COMPILE, ("never", "always"))
    if recipe.precision.lower or recipe.recompute:
        # The compiler keeps float32 where the rule rounds, and what could be computed again.
        compiling = "never"
    images = any(p.dim() == 4 for p in network.parameters())
    formats = FORMATS if images else FORMATS[:1]
    if wanted and images:
        formats = (wanted,)
    if batch is None or (compiling == "never" and len(formats) == 1):
        return Choice(formats[0], False, "set by the user" if wanted else "nothing was measured")
    path = kept_at(recipe, batch)
    times = recall(path)
    if not times.keys() >= set(formats):
        times = keep(
            path, times | by_turns({f: gradient(network, loss, f, batch) for f in formats})
        )
    plain = formats[0]
    best = next((f for f in formats if times[plain] > WORTH_IT * times[f]), plain)
    reason = ", ".join(f"{name} {times[name]:.3g} ms" for name in formats)
    if compiling == "never":
        return Choice(best, False, f"{reason}; compiling is off")
    if compiling != "always" and times[best] * recipe.updates / 1e3 < LONG:
        return Choice(best, False, f"{reason}; too short to compile for")
    name = f"{best}, {replace(recipe.rule, lr=1.0)}"
    if name not in times:
        makers = {
            kernels: partial(update, recipe.rule, network, loss, best, batch, kernels == "compiled")
            for kernels in ("recorded", "compiled")
        }
        times = keep(path, times | {name: compiled_against(**makers)})
    return judge(best, times[name], reason, recipe.updates, compiling == "always")


def judge(best: str, times: Times, reason: str, updates: int, always: bool) -> Choice:
    """Compile where what it saves in so many updates pays for its seconds.

    Raises:
        UserError: it is to be compiled ``always``, and that failed.
    """
    if "failed" in times:
        if always:
            raise UserError(
                f"{COMPILE}=always, but compiling failed: {times['failed']}; leave it unset, or "
                "install a C++ compiler such as g++ where there is none"
            )
        return Choice(best, False, f"{reason}; compiling failed: {times['failed']}")
    before, after, seconds = times["recorded"], times["compiled"], times["seconds"]
    reason = f"{reason}; compiled in {seconds:.1f} s: {before:.3g} ms, then {after:.3g} ms"
    pays = (before - after) * updates / 1e3 > PAYS * seconds and before > WORTH_IT * after
    return Choice(best, always or pays, reason)


def setting(variable: str, values: Sequence[str]) -> str:
    """The user's value, or nothing."""
    value = os.environ.get(variable, "")
    if value and value not in values:
        raise UserError(f"{variable} is {' or '.join(values)}, or unset; received {value!r}")
    return value


def copied(network: nn.Module, memory_format: str) -> nn.Module:
    network = copy.deepcopy(network)
    return network.to(memory_format=getattr(torch, memory_format))  # type: ignore[call-overload, no-any-return]


def gradient(network: nn.Module, loss: Loss, memory_format: str, batch: Batch) -> Work:
    return partial(Recorded(copied(network, memory_format), loss).gradient, *batch)


def update(
    rule: Rule, network: nn.Module, loss: Loss, memory_format: str, batch: Batch, compiled: bool
) -> Work:
    """Whole updates of a copy of the network, by the rule."""
    network = copied(network, memory_format)
    recorded = Recorded(network, loss, compiled=len(batch[1]) * compiled)
    rules = optimizer(rule, network.parameters(), compiled=compiled)

    def once() -> None:
        for parameter in network.parameters():
            parameter.grad = None
        recorded(*batch, 1.0)
        rules.advance()

    return once


def compiled_against(recorded: Callable[[], Work], compiled: Callable[[], Work]) -> Times:
    """Milliseconds of an update as recorded and compiled, and the seconds of compiling."""
    begin = time.perf_counter()
    try:
        fast = compiled()
        fast()
    except Exception as error:  # the compiler's, or its compiler's: whatever it is, go on without
        return {"failed": f"{error}".strip().partition("\n")[0][:200]}
    seconds = time.perf_counter() - begin
    return {**by_turns({"recorded": recorded(), "compiled": fast}), "seconds": seconds}


def by_turns(variants: Mapping[str, Work]) -> Times:
    """Milliseconds of each at its best: what else the machine does only adds to it."""
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
        if number >= 4 and (time.perf_counter() - begin) * 1e3 > ENOUGH * len(variants):
            break
    return best


def kept_at(recipe: Recipe, batch: Batch) -> Path | None:
    """The file of these times; None where there is no cache folder."""
    spec, threads = recipe.spec, torch.get_num_threads()
    versions = torch.__version__, torch.backends.cpu.get_cpu_capability(), machine.cpu_model()
    compiler = any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++")))
    parts = [*versions, threads, compiler, repr(spec), recipe.loss, len(batch[1])]
    parts += [recipe.precision.type] if recipe.precision.lower else []
    parts += [recipe.recompute] if recipe.recompute else []
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    try:
        return machine.cache_dir() / f"torch-kernels-{key}.json"
    except (ImportError, OSError, RuntimeError):
        return None


def recall(path: Path | None) -> Times:
    """The times that are kept; a file that is missing or damaged has none."""
    try:
        times = read_json(path) if path else {}
        formats = [times[name] > 0 for name in times if name in FORMATS]
        others = [{*times[name]} for name in times if name not in FORMATS]
        whole = all(formats) and all("failed" in keys or keys >= COMPARED for keys in others)
        return dict(times) if whole else {}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def keep(path: Path | None, times: Times) -> Times:
    """Those of whoever measured first; where they cannot be written, they count for this trial."""
    times = times | recall(path)
    try:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, times)
    except OSError:
        pass
    return times
