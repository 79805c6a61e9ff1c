"""What this run does not show."""

from __future__ import annotations

from dualml.report import machine, numbers, ranks
from dualml.report.analysis.base import Finding, Notes
from dualml.report.model import Run
from dualml.report.scaling import all_points
from dualml.report.splits.arms import split_arms
from dualml.report.words import Words


def crowded_items(run: Run, words: Words) -> list[str]:
    """The backends whose ranks had to share cores, with the numbers."""
    return [
        words(
            "page.crowded_item",
            backend=backend,
            ranks=words.count("rank", n),
            threads=words.count("thread", threads),
            cores=words.count("core", have),
        )
        for backend, n, threads, have in machine.crowded(run)
    ]


def caveats(run: Run, words: Words) -> list[Finding]:
    notes = Notes(words, "caveats")
    threads: dict[str, list[str]] = {}
    for backend in run.backends:
        known = run.environment.get(backend) or {}
        threads.setdefault(str(known.get("threads", "?")), []).append(backend)
    for count, backends in threads.items():
        if count != "?":
            text = words("say.caveats.all") if count == "all" else count
            notes.warn("threads", backends=words.join(backends), threads=text)
            cores = {c for b in backends if (c := machine.cores(run, b)) is not None}
            if len(cores) == 1:
                notes.warn("cores", backends=words.join(backends), cores=cores.pop())
        else:
            notes.warn("threads_unknown", backends=words.join(backends))
    if len(threads) > 1:
        notes.warn("threads_differ")
    data = run.meta.get("data") or {}
    if data.get("source") == "embedded":
        notes.warn("embedded", name=data.get("name"))
    for arm in run.main_arms():
        samples = run.arms[arm].get("samples")
        if samples:
            notes.warn("subset", arm=arm, samples=numbers.quantity(samples))
    if run.experiment.get("quick"):
        notes.warn("quick_ranks" if ranks.distributed(run) else "quick")
    if ranks.distributed(run):
        items = crowded_items(run, words)
        if items:
            key = "crowded_some" if any(p.speedup for p in all_points(run)) else "crowded"
            # Of split models their own topic says which arms these are.
            notes.warn("crowded_split" if split_arms(run) else key, values=words.semicolons(items))
        threaded = [b for b in run.backends if run.framework(b) == "numpy"]
        for key, backends in (
            ("loopback", [b for b in run.backends if b not in threaded]),
            ("threaded", threaded),
        ):
            if backends:
                notes.warn(key, backends=words.join(backends))
    if len(run.seeds) == 1:
        notes.warn("one_seed", seed=run.seeds[0])
    else:
        notes.warn("seeds_intervals" if run.dealt or all_points(run) else "seeds", n=len(run.seeds))
    bad = [t for t in run.trials if not t.ok]
    if bad:
        notes.warn("failed", len(bad), n=len(bad), total=len(run.trials))
    if run.comparisons is None:
        notes.warn("no_parity")
    if len(run.folders) > 1:
        notes.warn("folders")
    return notes
