"""The table of methods: what each trained, its costs, and the lines that it changes in the loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData, Serial
from dualml.report.baseline_diff import exclusion_reason
from dualml.report.blocks import Block, Cell, Fold
from dualml.report.columns import Columns, table, tabulate, verdict_cell
from dualml.report.draw.palette import SERIES
from dualml.report.figure import Axis, Bar, Figure, LegendEntry, Panel, SeriesId
from dualml.report.measures import loss_unit
from dualml.report.methods import MethodResult, compares_methods, method_results
from dualml.report.notes import Notes
from dualml.report.presentation import build_figure
from dualml.report.topics import ReportSection

FINGERPRINT_CHARS = 8  # letters of a fingerprint
PRECISIONS = tuple(SERIES["precision"])
#: Columns that identify a row.
KEY_COLUMNS = ("method", "`arm`", "backend")


def _order(way: MethodResult) -> tuple[int, int]:
    """Return the sorting key of a method: by precision, unknown ones last."""
    known = way.precision in PRECISIONS
    return PRECISIONS.index(way.precision) if known else len(PRECISIONS), 0


def split_by_equivalence(
    run: RunData, words: Messages
) -> tuple[list[MethodResult], list[tuple[MethodResult, str]]]:
    """Split the methods with a successful trial.

    Returns:
        Those that trained the same as their baseline, and the plain arms, sorted by precision; and
        the others, each with the sentence that says why it is not ranked (`exclusion_reason`).
    """
    every = [(w, exclusion_reason(w, words)) for w in method_results(run)]
    good = sorted((w for w, why in every if not why), key=_order)
    return good, [(w, why) for w, why in every if why]


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the tables of ranked methods, of what each trained, of methods that trained something
    else, and of those that did not run."""
    good, others = split_by_equivalence(run, words)
    if good:
        yield from _ranked(good, words)
    every = method_results(run, ok=False)
    name: Columns[MethodResult] = {KEY_COLUMNS: lambda w: name_cells(w, words)}
    trained: Columns[MethodResult] = {
        **name,
        "processes:": lambda w: Cell(str(w.processes), note=_groups(w, words)),
        "batch:samples": lambda w: str(w.arm_settings.batch_size),
        "epoch_updates:count": lambda w: w.epoch_updates,
        "rank_samples": lambda w: words.semicolons(
            [f"{n:,} · {sha[:FINGERPRINT_CHARS]}" for n, sha in w.trials[0].samples]
        ),
        f"final_loss:{loss_unit(run)}": lambda w: w.loss and w.loss.plus_minus(),
        "test_accuracy:percent": lambda w: w.accuracy and w.accuracy.plus_minus(100.0, 2),
        "f1:percent": lambda w: w.f1,
    }
    yield from tabulate(words, "trained", sorted(method_results(run), key=_order), trained)
    head = (*KEY_COLUMNS, "other", "test_accuracy:percent", "step_q:milliseconds")
    rows = (
        [
            *name_cells(w, words),
            Cell(why, "bad"),
            w.accuracy and w.accuracy.plus_minus(100.0, 2),
            _ms(w),
        ]
        for w, why in others
    )
    yield from table(words, "others", head, rows)
    absent: Columns[MethodResult] = {
        **name,
        "reason": lambda w: run.select(w.arm, w.backend, ok=False)[0].reason,
    }
    yield from tabulate(words, "absent", (w for w in every if not w.trials), absent)


def _ranked(good: Sequence[MethodResult], words: Messages) -> Iterator[Block]:
    """Yield figure and tables of costs of the methods that trained the same as their baseline."""
    yield _figure(good, words)
    cheapest = _cheapest(good)
    costs: Columns[MethodResult] = {
        "method": lambda w: _method(w, words),
        "`arm`": lambda w: Cell(w.arm, note=w.backend),
        "precision_kind": lambda w: Cell(w.precision, note=words.count("rank", w.processes)),
        "step_q:milliseconds": lambda w: _step(w, cheapest),
        "to_single:relative": lambda w: _ratio(w, words),
        "code_lines:": lambda w: None if w.changed_lines is None else f"{w.changed_lines}",
        "verdict": lambda w: _verdict(w, words),
        "own_precision?": lambda w: judged_cell(
            w.same_precision_verdict, w.same_precision_comparisons, words
        ),
    }
    yield from tabulate(words, "methods", good, costs)
    resources: Columns[MethodResult] = {
        KEY_COLUMNS: lambda w: name_cells(w, words),
        "rate:per_second": lambda w: numbers.quantity(w.rate.mean) if w.rate else None,
        "to_target:seconds": lambda w: _time_to_target(w, words),
        "host_memory:memory": lambda w: numbers.mean([t.peak_memory_mb for t in w.trials]),
        "device_memory:bytes": lambda w: _device_memory(w, words),
        "sent:bytes_update": lambda w: _sent_cell(w, words),
    }
    yield from tabulate(words, "resources", good, resources)


def name_cells(w: MethodResult, words: Messages) -> list[Cell | str]:
    """Return the first cells of a row: method, arm, backend."""
    return [_method(w, words), w.arm, w.backend]


def _method(w: MethodResult, words: Messages) -> Cell:
    """Return the cell of a method's name, with its launcher below."""
    several = w.arm_settings.world_size > 1
    return Cell(w.title(words), note=w.launcher(words) if several else "")


def _ms(w: MethodResult) -> str | None:
    """Return the median milliseconds of an update as text, None if unknown."""
    return numbers.ms(w.step_quartiles[1]) if w.step_quartiles else None


def _step(w: MethodResult, cheapest: Sequence[MethodResult]) -> Cell | None:
    """Return the cell of the median milliseconds of an update, with the quartiles below, green for
    a method in ``cheapest``; None if unknown."""
    if w.step_quartiles is None:
        return None
    low, middle, high = map(numbers.ms, w.step_quartiles)
    return Cell(middle, "good" if w in cheapest else "", f"{low} – {high}")


def _time_to_target(w: MethodResult, words: Messages) -> Cell:
    """Return the cell of the median seconds to the target accuracy, with quartiles and number of
    seeds below; with one seed its value. A dash with the number of seeds that reach it if not all
    do."""
    n, k = len(w.seconds_to_target), sum(s is not None for s in w.seconds_to_target)
    if w.seconds_to_target_quartiles is None:
        return Cell(numbers.NO_VALUE, note=words("methods.reached", n=k, of=n) if n else "")
    low, middle, high = map(numbers.quantity, w.seconds_to_target_quartiles)
    seeds = words.count("seed", n)
    spread = words("methods.quartiles", low=low, high=high, seeds=seeds)
    return Cell(middle, note=spread if n > 1 else seeds)


def _ratio(w: MethodResult, words: Messages) -> Cell | None:
    """Return the cell of the update time relative to the baseline's, with the closed form below;
    None if it was not measured."""
    if w.step_ratio is None:
        return None
    note = words("methods.closed_ratio", ratio=w.closed_form_ratio) if w.closed_form_ratio else ""
    return Cell(numbers.factor(w.step_ratio), note=note)


def _cheapest(good: Sequence[MethodResult]) -> list[MethodResult]:
    """Return the fastest method per backend, precision and number of processes, among those with
    the same baseline (or a baseline itself); none for a group of a single method."""
    groups: dict[tuple[str, str, str, int], list[MethodResult]] = {}
    for w in good:
        if w.step_quartiles:
            one = w.reference or w
            groups.setdefault((one.arm, w.backend, w.precision, w.processes), []).append(w)
    return [
        min(g, key=lambda w: w.step_quartiles[1] if w.step_quartiles else 0.0)
        for g in groups.values()
        if len(g) > 1
    ]


def _device_memory(w: MethodResult, words: Messages) -> Cell | None:
    """Return the cell of the counted bytes, with a lower bound if some were not measured; below it
    the closed form of weights, gradients and state, and the further components."""
    if w.counted_bytes is None or (most := w.fullest_rank) is None:
        return None
    notes = [] if w.device_bytes is not None else [words("methods.unseen")]
    if w.closed_form_bytes is not None:
        notes.append(words("methods.closed", bytes=w.closed_form_bytes))
    for part in ("activations", "buckets"):
        if nbytes := getattr(most, part):
            notes.append(f"{words(f'device_memory.{part}')} {numbers.nbytes(nbytes)}")
    text = numbers.nbytes(w.counted_bytes if w.device_bytes is None else w.device_bytes)
    return Cell(text if w.device_bytes is not None else f"≥ {text}", note=words.semicolons(notes))


def _sent_cell(w: MethodResult, words: Messages) -> Cell | None:
    """Return the cell of the measured bytes sent, with the closed form below; None if not
    measured."""
    if w.sent_bytes is None:
        return None
    note = (
        words("methods.closed", bytes=w.closed_form_sent_bytes) if w.closed_form_sent_bytes else ""
    )
    return Cell(numbers.nbytes(w.sent_bytes), note=note)


def _verdict(w: MethodResult, words: Messages) -> Cell | None:
    """Return the cell of the verdict by the envelope, with the share of it that is used; for low
    precision the verdict over the seeds. None without a verdict."""
    test = w.equivalence_test
    if test is None:
        return judged_cell(w.verdict, w.baseline_comparisons, words)
    return judged_cell(w.verdict, (), words, words("methods.seeds", test=test))


def judged_cell(
    verdict: str, by_seed: Sequence[Serial], words: Messages, more: str = ""
) -> Cell | None:
    """Return the cell of a verdict, with the largest share of an envelope that one of the
    comparisons ``by_seed`` uses and the text ``more`` below; None for an empty verdict."""
    if not verdict:
        return None
    worst = max((s.worst for s in by_seed if s.worst is not None), default=None)
    ratio = "" if worst is None else words("methods.worst", ratio=numbers.factor(worst))
    note = words.semicolons([part for part in (ratio, more) if part])
    return replace(verdict_cell(verdict, words), note=note)


def _groups(w: MethodResult, words: Messages) -> str:
    """Return as text which ranks an engine groups for pipeline and for data parallelism; empty
    without groups."""
    kinds = {kind: w.trials[0].how.get(f"{kind} groups") for kind in ("pipe", "data")}
    return words.semicolons(
        [
            words(f"methods.{kind}_groups", ranks=f"({ranks.replace('; ', ') (')})")
            for kind, ranks in kinds.items()
            if ranks
        ]
    )


def _figure(good: Sequence[MethodResult], words: Messages) -> Figure:
    """Return a figure with a bar per method for the median milliseconds of an update, a panel per
    backend."""
    backends = list(dict.fromkeys(w.backend for w in good))
    panels = []
    for backend in backends:
        own = [w for w in good if w.backend == backend and w.step_quartiles]
        bars = [
            Bar(
                y,
                1e3 * w.step_quartiles[1],
                SeriesId(series=w.precision),
                text=numbers.ms(w.step_quartiles[1]),
            )
            for y, w in enumerate(own)
            if w.step_quartiles
        ]
        across = Axis(words("axis.step_ms"), low=0)
        down = Axis(names=[w.arm for w in own])
        panels.append(Panel(bars, across, down, backend, height=22.0 * max(2, len(own))))
    used = [p for p in PRECISIONS if any(w.precision == p for w in good)]
    keys = [LegendEntry("series", p, color=SERIES["precision"][p]) for p in used]
    said = "; ".join(
        f"{w.arm} {w.backend} {numbers.ms(w.step_quartiles[1])}" for w in good if w.step_quartiles
    )
    return build_figure(words, "methods", panels, keys, {"values": said})


def findings(notes: Notes, run: RunData) -> None:
    """Add how many methods, counted on each backend, equal the baseline, the fastest ones, and a
    warning for each that trained something else."""
    words = notes.words
    good, others = split_by_equivalence(run, words)
    held = [w for w in good if w.verdict]
    equal = [w for w in held if w.verdict == "equal"]
    if held:
        notes.add("equal", k=len(equal), n=len(held))
    for w in _cheapest(good):
        if w.step_ratio is not None and w.processes > 1:
            notes.add(
                "fastest",
                arm=w.arm,
                backend=w.backend,
                n=w.processes,
                precision=w.precision,
                times=w.step_ratio,
            )
    notes.set_anchor("table-resources")
    for backend in dict.fromkeys(
        w.backend for w in good if w.counted_bytes and w.device_bytes is None
    ):
        notes.add_per_backend(backend, "unseen")
    notes.add_collected()
    notes.set_anchor("table-others")
    for w, why in others:
        notes.add_warning("other", arm=w.arm, backend=w.backend, why=why)


def code(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the file of every method of the run, folded and each once, in the order of the arms:
    ``single`` in full, others as a diff from it."""
    seen = dict[str, MethodResult]()
    for w in method_results(run, ok=False):
        if w.code is not None and w.code.text:
            seen.setdefault(w.code.caption, w)
    for w in seen.values():
        if w.code is not None:
            lines = words("methods.lines", n=w.changed_lines)
            yield Fold(f"{w.title(words)} · {w.backend} · {lines}", [w.code])


TOPICS = [
    ReportSection(
        "methods",
        20,
        evidence,
        findings,
        "table-methods",
        priority=lambda run: 90,
        when=compares_methods,
    ),
    ReportSection("method-code", 300, code, group="code", when=compares_methods),
]
