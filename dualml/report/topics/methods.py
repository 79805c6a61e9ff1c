"""The table of methods: what each trained, its costs, and the lines that it changes in the loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.report.blocks import Block, Cell, Fold, Item
from dualml.report.columns import SIGNS, VERDICT_TONES, Row, table
from dualml.report.figure import Axis, Bar, Figure, Key, Owner, Panel
from dualml.report.measures import loss_unit
from dualml.report.methods import Way, about, ways, worst_of
from dualml.report.notes import Notes
from dualml.report.shown import figure
from dualml.report.topics import Topic
from dualml.report.trained import wrong
from dualml.store.run import Run, Serial
from dualml.words import Words, numbers

SHORT = 8  # letters of a fingerprint
PRECISIONS = ("fp32", "bf16", "fp16")
#: Columns that identify a row.
WHICH = ("method", "`arm`", "backend")
COLORS = {"fp32": "forward", "bf16": "plum", "fp16": "backward"}


def _order(way: Way) -> tuple[int, int]:
    """Return the sorting key of a method: by precision, unknown ones last."""
    known = way.precision in PRECISIONS
    return PRECISIONS.index(way.precision) if known else len(PRECISIONS), 0


def sorted_out(run: Run, words: Words) -> tuple[list[Way], list[tuple[Way, str]]]:
    """Return the methods that trained the same as their baseline, by precision, and the others,
    each with what it trained instead."""
    every = [(w, wrong(w, words)) for w in ways(run)]
    good = sorted((w for w, why in every if not why), key=_order)
    return good, [(w, why) for w, why in every if why]


def evidence(run: Run, words: Words) -> Iterator[Block]:
    good, others = sorted_out(run, words)
    if good:
        yield from _ranked(good, words)
    yield from table(
        words, "trained",
        (*WHICH, "processes:", "batch:samples", "epoch_updates:count",
         "rank_samples", f"final_loss:{loss_unit(run)}", "test_accuracy:percent", "f1:percent"),
        [_trained(w, words) for w in sorted(ways(run), key=_order)],
    )  # fmt: skip
    yield from table(
        words, "others", (*WHICH, "other", "test_accuracy:percent", "step_q:milliseconds"),
        [[*which(w, words), Cell(why, "bad"), w.accuracy and w.accuracy.plus_minus(100.0, 2),
          _ms(w)] for w, why in others],
    )  # fmt: skip
    absent = [
        [*which(w, words), run.select(w.arm, w.backend, ok=False)[0].reason]
        for w in ways(run, ok=False)
        if not w.trials
    ]
    yield from table(words, "absent", (*WHICH, "reason"), absent)


def _ranked(good: Sequence[Way], words: Words) -> Iterator[Block]:
    """Yield figure and tables of costs of the methods that trained the same as their baseline."""
    yield _figure(good, words)
    cheapest = _cheapest(good)
    lower = any(w.lowered for w in good)
    head = ("method", "`arm`", "precision_kind", "step_q:milliseconds", "to_single:relative",
            "code_lines:", "verdict", *(["own_precision"] if lower else []))  # fmt: skip
    rows: list[Row] = [
        [_method(w, words), Cell(w.arm, note=w.backend),
         Cell(w.precision, note=words.count("rank", w.processes)), _step(w, cheapest),
         _ratio(w, words), _lines(w), _verdict(w, words),
         *([judged(worst_of(w.lowered), w.lowered, words)] if lower else [])]
        for w in good
    ]  # fmt: skip
    yield from table(words, "methods", head, rows)
    needs = (*WHICH, "rate:per_second", "to_target:seconds", "host_memory:memory",
            "device_memory:bytes", "sent:bytes_update")  # fmt: skip
    rows = [
        [*which(w, words), numbers.quantity(w.rate.mean) if w.rate else None, _reached(w, words),
         _memory(w), _held(w, words), _sent(w, words)]
        for w in good
    ]  # fmt: skip
    yield from table(words, "resources", needs, rows)


def which(w: Way, words: Words) -> list[Cell | str]:
    """Return the first cells of a row: method, arm, backend."""
    return [_method(w, words), w.arm, w.backend]


def _method(w: Way, words: Words) -> Cell:
    """Return the cell of a method's name, with its launcher below."""
    several = w.arm_settings.world_size > 1
    return Cell(w.title(words), note=w.launcher(words) if several else "")


def _ms(w: Way) -> str | None:
    return numbers.ms(w.steps_s[1]) if w.steps_s else None


def _step(w: Way, cheapest: Sequence[Way]) -> Cell | None:
    """Return the cell of the median update time, with the quartiles below."""
    if w.steps_s is None:
        return None
    low, middle, high = map(numbers.ms, w.steps_s)
    return Cell(middle, "good" if w in cheapest else "", f"{low} – {high}")


def _reached(w: Way, words: Words) -> Cell:
    """Return the cell of the median seconds to the target accuracy, with quartiles and number of
    seeds below; with one seed its value."""
    n, k = len(w.reached), sum(s is not None for s in w.reached)
    if w.reached_s is None:
        return Cell(numbers.NONE, note=words("methods.reached", n=k, of=n) if n else "")
    low, middle, high = map(numbers.quantity, w.reached_s)
    seeds = words.count("seed", n)
    spread = words("methods.quartiles", low=low, high=high, seeds=seeds)
    return Cell(middle, note=spread if n > 1 else seeds)


def _ratio(w: Way, words: Words) -> Cell | None:
    """Return the cell of the measured ratio, with the closed form below."""
    if w.ratio is None:
        return None
    note = words("methods.closed_ratio", ratio=w.closed_ratio) if w.closed_ratio else ""
    return Cell(numbers.factor(w.ratio), note=note)


def _cheapest(good: Sequence[Way]) -> list[Way]:
    """Return the fastest method per framework, precision and number of processes, among those with
    the same baseline."""
    groups: dict[tuple[str, str, str, int], list[Way]] = {}
    for w in good:
        if w.steps_s:
            one = w.reference or w
            groups.setdefault((one.arm, w.backend, w.precision, w.processes), []).append(w)
    return [
        min(g, key=lambda w: w.steps_s[1] if w.steps_s else 0.0)
        for g in groups.values()
        if len(g) > 1
    ]


def _memory(w: Way) -> float | None:
    return numbers.mean([t.peak_memory_mb for t in w.trials])


def _held(w: Way, words: Words) -> Cell | None:
    """Return the cell of the counted bytes, with a lower bound if some were not measured; below it
    the closed form of weights, gradients and state, and the further components."""
    if w.counted is None or (most := w.most_memory) is None:
        return None
    notes = [] if w.held is not None else [words("methods.unseen")]
    if w.closed_held is not None:
        notes.append(words("methods.closed", bytes=w.closed_held))
    for part in ("activations", "buckets"):
        if nbytes := getattr(most, part):
            notes.append(f"{words(f'device_memory.{part}')} {numbers.nbytes(nbytes)}")
    text = numbers.nbytes(w.counted if w.held is None else w.held)
    return Cell(text if w.held is not None else f"≥ {text}", note=words.semicolons(notes))


def _sent(w: Way, words: Words) -> Cell | None:
    """Return the cell of the measured bytes sent, with the closed form below."""
    if w.sent is None:
        return None
    note = words("methods.closed", bytes=w.closed) if w.closed else ""
    return Cell(numbers.nbytes(w.sent), note=note)


def _lines(w: Way) -> str | None:
    return None if w.changed is None else f"{w.changed}"


def _verdict(w: Way, words: Words) -> Cell | None:
    """Return the cell of the verdict by the envelope, with the share of it that is used; for low
    precision the verdict over the seeds."""
    test = w.over_seeds
    if test is None:
        return judged(w.verdict, w.judged, words)
    return judged(w.verdict, (), words, words("methods.seeds", test=test))


def judged(verdict: str, by_seed: Sequence[Serial], words: Words, more: str = "") -> Cell | None:
    """Return the cell of a verdict, with the largest share of an envelope that a seed uses and
    ``more`` below; None without a verdict."""
    if not verdict:
        return None
    tone = VERDICT_TONES.get(verdict, "muted")
    text = words(f"verdict.{verdict.replace(' ', '_')}")
    worst = max((s.worst for s in by_seed if s.worst is not None), default=None)
    ratio = "" if worst is None else words("methods.worst", ratio=numbers.factor(worst))
    note = words.semicolons([part for part in (ratio, more) if part])
    return Cell(f"{SIGNS[tone]} {text}", tone, note)


def _trained(w: Way, words: Words) -> list[object]:
    """Return the row of what a method trained."""
    t = w.trials[0]
    parts = [f"{n:,} · {sha[:SHORT]}" for n, sha in t.samples]
    return [
        *(*which(w, words), Cell(str(w.processes), note=_groups(w, words))),
        str(w.arm_settings.batch_size),
        *(w.epoch_updates, words.semicolons(parts), w.loss and w.loss.plus_minus()),
        *(w.accuracy and w.accuracy.plus_minus(100.0, 2), w.f1),
    ]


def _groups(w: Way, words: Words) -> str:
    """Return the ranks that an engine groups for pipeline and data parallelism; empty without
    groups."""
    kinds = {kind: w.trials[0].how.get(f"{kind} groups") for kind in ("pipe", "data")}
    return words.semicolons(
        [words(f"methods.{kind}_groups", ranks=f"({ranks.replace('; ', ') (')})")
         for kind, ranks in kinds.items() if ranks]
    )  # fmt: skip


def _figure(good: Sequence[Way], words: Words) -> Figure:
    """Return a bar per method with the milliseconds of an update, a panel per backend."""
    backends = list(dict.fromkeys(w.backend for w in good))
    panels = []
    for backend in backends:
        own = [w for w in good if w.backend == backend and w.steps_s]
        bars = [
            Bar(y, 1e3 * w.steps_s[1], Owner(series=w.precision), text=numbers.ms(w.steps_s[1]))
            for y, w in enumerate(own)
            if w.steps_s
        ]
        across = Axis(words("axis.step_ms"), low=0)
        down = Axis(names=[w.arm for w in own])
        panels.append(Panel(bars, across, down, backend, height=22.0 * max(2, len(own))))
    used = [p for p in PRECISIONS if any(w.precision == p for w in good)]
    keys = [Key("series", p, color=COLORS[p]) for p in used]
    said = "; ".join(f"{w.arm} {w.backend} {numbers.ms(w.steps_s[1])}" for w in good if w.steps_s)
    return figure(words, "methods", panels, keys, {"values": said}, columns=len(panels))


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes = Notes(words, "methods", "table-methods")
    good, others = sorted_out(run, words)
    held = [w for w in good if w.verdict]
    equal = [w for w in held if w.verdict == "equal"]
    if held:
        notes.say("equal", k=len(equal), n=len(held))
    for w in _cheapest(good):
        if w.ratio is not None and w.processes > 1:
            notes.say("fastest", arm=w.arm, backend=w.backend, n=w.processes,
                      precision=w.precision, times=w.ratio)  # fmt: skip
    notes.about("table-resources")
    for backend in dict.fromkeys(w.backend for w in good if w.counted and w.held is None):
        notes.share(backend, "unseen")
    notes.close()
    notes.about("table-others")
    for w, why in others:
        notes.warn("other", arm=w.arm, backend=w.backend, why=why)
    return notes


def code(run: Run, words: Words) -> Iterator[Block]:
    """Yield the single-process loop of each framework, then every method as a diff from it."""
    seen = dict[str, Way]()
    for w in ways(run, ok=False):
        if w.code is not None and w.code.text:
            seen.setdefault(w.code.caption, w)
    for w in seen.values():
        if w.code is not None:
            lines = words("methods.lines", n=w.changed)
            yield Fold(f"{w.title(words)} · {w.backend} · {lines}", [w.code])


TOPICS = [
    Topic("methods", 20, evidence, findings, leads=lambda run: 90, when=about),
    Topic("method-code", 300, code, part="code", when=about),
]
