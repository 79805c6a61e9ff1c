"""Limitations of this run."""

from __future__ import annotations

from collections.abc import Sequence

from dualml.report import machine, ranks
from dualml.report.blocks import Item
from dualml.report.notes import Notes
from dualml.report.scaling import all_points
from dualml.report.splits.arms import Splits
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes = Notes(words, "caveats")
    _threads(notes, run)
    data = run.meta.get("data") or {}
    if data.get("source") == "embedded":
        notes.warn("embedded", name=data.get("name"))
    for arm in run.main_arms():
        samples = run.arms[arm].get("samples")
        if samples:
            notes.warn("subset", arm=arm, samples=samples)
    if carrying := stateful_arms(run):
        notes.warn("stateful", arms=carrying)
    if run.experiment.get("quick"):
        notes.warn("quick_ranks" if ranks.distributed(run) else "quick")
    if ranks.distributed(run):
        _one_machine(notes, run)
    if len(run.seeds) == 1:
        notes.warn("one_seed", seed=run.seeds[0])
    else:
        notes.warn("seeds_intervals" if run.dealt or all_points(run) else "seeds", n=len(run.seeds))
    failed = sum(not t.ok for t in run.trials)
    if failed:
        notes.warn("failed", failed, n=failed, total=len(run.trials))
    if run.comparisons is None:
        notes.warn("no_parity")
    if len(run.folders) > 1:
        notes.warn("folders")
    return notes


def stateful_arms(run: Run) -> list[str]:
    """Return the arms whose model carries its state over batches."""
    name = str(run.experiment.get("model"))
    specs = {arm: run.models.get(s.variant or name) or {} for arm, s in run.settings.items()}
    return [
        arm
        for arm, spec in specs.items()
        if any(layer.get("stateful") for layer in spec.get("layers") or ())
    ]


def _threads(notes: Notes, run: Run) -> None:
    """Add the number of threads and cores of each backend."""
    threads: dict[str, list[str]] = {}
    for backend in run.backends:
        count = (run.environment.get(backend) or {}).get("threads", "?")
        threads.setdefault(str(count), []).append(backend)
    for count, backends in threads.items():
        if count == "?":
            notes.warn("threads_unknown", backends=backends)
            continue
        text = notes.words("say.caveats.all") if count == "all" else count
        notes.warn("threads", backends=backends, threads=text)
        cores = {c for b in backends if (c := machine.cores(run, b)) is not None}
        if len(cores) == 1:
            notes.warn("cores", backends=backends, cores=cores.pop())
    if len(threads) > 1:
        notes.warn("threads_differ")


def _one_machine(notes: Notes, run: Run) -> None:
    """Add what several ranks on one machine can and cannot show about several machines."""
    crowded = machine.crowded_items(run, notes.words)
    if crowded:
        some = "crowded_some" if any(p.speedup for p in all_points(run)) else "crowded"
        # For split models, their own topic names the arms.
        notes.warn("crowded_split" if Splits(run) else some, values=crowded)
    threads = [b for b in run.backends if run.framework(b) == "numpy"]
    processes = [b for b in run.backends if b not in threads]
    for key, backends in (("loopback", processes), ("threaded", threads)):
        if backends:
            notes.warn(key, backends=backends)


TOPIC = Topic("caveats", 900, lambda run, words: (), findings)
