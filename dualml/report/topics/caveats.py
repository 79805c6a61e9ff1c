"""Limitations of this run."""

from __future__ import annotations

from dualml.experiment.store.run import RunData
from dualml.report import machine, ranks
from dualml.report.notes import Notes
from dualml.report.scaling import scaling_points
from dualml.report.splits.arms import Splits
from dualml.report.topics import ReportSection


def findings(notes: Notes, run: RunData) -> None:
    """Add warnings about this run: numbers of threads, embedded data or subsets, shortened runs,
    few seeds, failed trials, a missing comparison, several machines."""
    _add_threads(notes, run)
    data = run.meta.get("data") or {}
    if data.get("source") == "embedded":
        notes.add_warning("embedded", name=data.get("name"))
    for arm in run.main_arms():
        samples = run.arms[arm].get("samples")
        if samples:
            notes.add_warning("subset", arm=arm, samples=samples)
    if carrying := stateful_arms(run):
        notes.add_warning("stateful", arms=carrying)
    if run.experiment.get("quick"):
        notes.add_warning("quick_ranks" if ranks.is_distributed(run) else "quick")
    if ranks.is_distributed(run):
        _add_one_machine(notes, run)
    if len(run.seeds) == 1:
        notes.add_warning("one_seed", seed=run.seeds[0])
    else:
        notes.add_warning(
            "seeds_intervals" if run.dealt or scaling_points(run) else "seeds", n=len(run.seeds)
        )
    failed = sum(not t.ok for t in run.trials)
    if failed:
        notes.add_warning("failed", failed, n=failed, total=len(run.trials))
    if run.comparisons is None:
        notes.add_warning("no_parity")
    if len(run.folders) > 1:
        notes.add_warning("folders")


def stateful_arms(run: RunData) -> list[str]:
    """Return the arms whose model carries its state over batches."""
    name = str(run.experiment.get("model"))
    specs = {arm: run.models.get(s.variant or name) or {} for arm, s in run.settings.items()}
    return [
        arm
        for arm, spec in specs.items()
        if any(layer.get("stateful") for layer in spec.get("layers") or ())
    ]


def _add_threads(notes: Notes, run: RunData) -> None:
    """Add the number of threads and cores of each backend."""
    threads: dict[str, list[str]] = {}
    for backend in run.backends:
        count = (run.environment.get(backend) or {}).get("threads", "?")
        threads.setdefault(str(count), []).append(backend)
    for count, backends in threads.items():
        if count == "?":
            notes.add_warning("threads_unknown", backends=backends)
            continue
        text = notes.words("say.caveats.all") if count == "all" else count
        notes.add_warning("threads", backends=backends, threads=text)
        cores = {c for b in backends if (c := machine.cores(run, b)) is not None}
        if len(cores) == 1:
            notes.add_warning("cores", backends=backends, cores=cores.pop())
    if len(threads) > 1:
        notes.add_warning("threads_differ")


def _add_one_machine(notes: Notes, run: RunData) -> None:
    """Add what several ranks on one machine can and cannot show about several machines."""
    crowded = machine.oversubscription_items(run, notes.words)
    if crowded:
        some = "crowded_some" if any(p.speedup for p in scaling_points(run)) else "crowded"
        # For split models, their own topic names the arms.
        notes.add_warning("crowded_split" if Splits(run) else some, values=crowded)
    threads = [b for b in run.backends if run.framework(b) == "numpy"]
    processes = [b for b in run.backends if b not in threads]
    for key, backends in (("loopback", processes), ("threaded", threads)):
        if backends:
            notes.add_warning(key, backends=backends)


TOPIC = ReportSection("caveats", 900, lambda run, words: (), findings)
