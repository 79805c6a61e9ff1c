"""Whole against split: time of an update, its parts rank by rank, the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dualml.report import numbers, ranks, style
from dualml.report.cells import SIGNS, VERDICT_TONES, Cell, Head, Table, heads, number
from dualml.report.model import Run, Serial
from dualml.report.scaling import PARTS
from dualml.report.scaling_figures import COLORS, WHOLE
from dualml.report.splits import arms, spent
from dualml.report.spread import Spread, cell
from dualml.report.style import Figure, slug
from dualml.report.words import Words

INCHES, BETWEEN = 0.185, 0.45  # of a bar; between two arms, in bars
SHOWN = ("gradient", "update", "wait", "transfer", "rest")


def whole_table(run: Run, words: Words) -> Table | None:
    """An arm in each row, the whole one before those that split it; two columns for a backend."""
    rows = []
    backends = [b for b in run.backends if any(run.select(a, b) for a in arms.split_arms(run))]
    judged = bool(run.serial)
    for base, members in arms.families(run).items():
        for arm in [*([base] if base else []), *members]:
            if not run.select(arm):
                continue
            one = arm == base
            cells = [Cell(arm, "code"), Cell(arms.model(run, arm), "code")]
            cells.append(Cell(words("splits.whole") if one else arms.told(run, arm, words)))
            cells.append(number(str(ranks.size(run, arm))))
            for backend in backends:
                cells.append(_timed(run, arm, backend, words))
                told = spent.against(run, arm, backend, None if one else base)
                cells.append(cell(told, text=numbers.factor))
            if judged:
                cells.append(_verdict(run, arm, words))
            rows.append(cells)
    if not rows:
        return None
    head = heads(words, "arm", "model", "split_how", "ranks:count")
    for backend in backends:
        head += [
            Head(words("splits.column.step", backend=backend), words("unit.milliseconds"), True),
            Head(words("splits.column.ratio", backend=backend), words("unit.relative"), True),
        ]
    head += heads(words, *(["split_verdict"] if judged else []))
    return Table("split-whole", words("table.split_whole"), head, rows)


def _timed(run: Run, arm: str, backend: str, words: Words) -> Cell:
    """A star where ranks took turns on cores."""
    found = spent.step(run, arm, backend)
    made = cell(found, 1e3)
    star = " *" if found is not None and spent.turns(run, arm, backend) else ""
    return Cell(made.text + star, made.kind, note=made.note)


def _verdict(run: Run, arm: str, words: Words) -> Cell:
    """The worst over backends and seeds."""
    found = [s for s in run.serial if s.arm == arm]
    if not found:
        return Cell(numbers.NONE)
    worst = max(found, key=_badness)
    if not worst.verdict:
        return Cell(
            words("value.another_rule"),
            note=words.either(f"rule.{worst.reason}", worst.reason),
        )
    tone = VERDICT_TONES.get(worst.verdict, "muted")
    text = words.either(f"verdict.{worst.verdict.replace(' ', '_')}", worst.verdict)
    return Cell(f"{SIGNS[tone]} {text}", tone=tone)


def _badness(s: Serial) -> int:
    return ["", "equal", "statistically equal", "not comparable"].index(s.verdict) if (
        s.verdict in ("", "equal", "statistically equal", "not comparable")
    ) else 9  # fmt: skip


def parts_table(run: Run, words: Words) -> Table | None:
    """Where an update's time goes, mean over the ranks."""
    rows = []
    for arm in arms.split_arms(run):
        for backend in run.backends:
            parts = spent.average(spent.by_rank(run, arm, backend))
            if not parts:
                continue
            step = spent.step(run, arm, backend)
            star = " *" if spent.turns(run, arm, backend) else ""
            whole = numbers.quantity(1e3 * step.mean) + star if step else numbers.NONE
            each = [number(numbers.quantity(1e3 * parts[k])) for k in SHOWN]
            rows.append([Cell(arm, "code"), Cell(backend), number(whole), *each])
    if not rows:
        return None
    columns = (f"part_{k}:milliseconds" for k in SHOWN)
    head = heads(words, "arm", "backend", "step:milliseconds", *columns)
    return Table("split-parts", words("table.split_parts"), head, rows)


# --- figures --------------------------------------------------------------------------------------


def whole_figures(run: Run, words: Words) -> Iterator[Figure]:
    """One for each whole model: a bar for it, and one for each rank of what splits it."""
    backends, explained = spent.shown(run), True
    for base, members in arms.families(run).items():
        chosen = _different(run, members)
        if any(spent.by_rank(run, arm, b) for arm in chosen for b in backends):
            yield _figure(run, words, base, chosen, backends, explained)
            explained = False


def _different(run: Run, members: Sequence[str]) -> list[str]:
    """The first arm of each way to split; others differ in numbers that have chapters of their
    own."""
    found: dict[Any, str] = {}
    for arm in arms.healthy(run, members):
        if run.select(arm):
            s = arms.split(run, arm)
            key = (*arms.kind(run, arm), arms.schedule(run, arm), ranks.size(run, arm))
            found.setdefault((*key, s["arrival"], str(s["layers"])), arm)
    return list(found.values())


def _figure(
    run: Run,
    words: Words,
    base: str | None,
    chosen: Sequence[str],
    backends: Sequence[str],
    explained: bool,
) -> Figure:
    name = f"split-{slug(base or chosen[0])}"
    heights = [ranks.size(run, arm) for arm in chosen]
    bars = sum(heights) + BETWEEN * len(chosen) + (1 + BETWEEN if base else 0)
    with style.canvas(style.WIDTH, 1.15 + INCHES * bars) as made:
        grid = made.subplots(1, len(backends), sharey=True, squeeze=False)[0]
        for axes, backend in zip(grid, backends, strict=True):
            y, marks, right = 0.0, [], 0.0
            if base:
                found = spent.step(run, base, backend)
                marks.append((y, base))
                right = max(right, _whole(axes, y, found))
                y += 1 + BETWEEN
            for arm in chosen:
                marks.append((y + (ranks.size(run, arm) - 1) / 2, arm))
                rows = spent.by_rank(run, arm, backend)
                for number_, row in enumerate(rows):
                    _bar(axes, y + number_, row, str(number_))
                ends = [1e3 * sum(row.values()) for row in rows]
                found = spent.step(run, arm, backend)
                if found is not None:
                    star = " *" if spent.turns(run, arm, backend) else ""
                    middle = y + (ranks.size(run, arm) - 1) / 2
                    if not rows:  # what its ranks did is not recorded
                        axes.barh(middle, 1e3 * found.mean, 0.84, color=WHOLE, linewidth=0)
                    end = max([1e3 * found.mean, *ends])
                    right = max(right, end)
                    _label(axes, end, middle, found, star)
                y += ranks.size(run, arm) + BETWEEN
            if base and right and (one := spent.step(run, base, backend)) is not None:
                axes.axvline(1e3 * one.mean, color="#555555", linewidth=0.8,
                             linestyle=(0, (4, 3)), zorder=0)  # fmt: skip
            axes.set_yticks([at for at, _ in marks], [text for _, text in marks], fontsize=8.5)
            axes.set_ylim(y - BETWEEN - 0.3, -0.7)
            axes.set_xlim(0, 1.17 * right or 1.0)
            axes.tick_params(axis="y", length=0)
            axes.grid(visible=False, axis="y")
            axes.set_title(backend)
            axes.set_xlabel(words("axis.update_ms"))
        _legend(made, words, base is not None)
        text = style.svg(made, name)
    notes = [words("splits.figure.whole", arm=base or numbers.NONE)]
    notes += [words("splits.figure.bars")] if explained else []
    if any(spent.turns(run, arm, b) for arm in chosen for b in backends):
        notes.append(words("figure.take_turns"))
    values = [
        f"{arm} {b} {numbers.quantity(1e3 * found.mean)}"
        for arm in [*([base] if base else []), *chosen]
        for b in backends
        if (found := spent.step(run, arm, b)) is not None
    ]
    alt = words("alt.update_parts", values=", ".join(values))
    return Figure(name, text, words.sentences(notes), alt)


def _whole(axes: Any, y: float, found: Spread | None) -> float:
    if found is None:
        return 0.0
    axes.barh(y, 1e3 * found.mean, 0.84, color=WHOLE, linewidth=0)
    _label(axes, 1e3 * found.mean, y, found, "")
    return 1e3 * found.mean


def _bar(axes: Any, y: float, row: dict[str, float], rank: str) -> None:
    left = 0.0
    for part in PARTS:
        axes.barh(y, 1e3 * row[part], 0.84, left=left, color=COLORS[part], linewidth=0)
        left += 1e3 * row[part]
    axes.annotate(rank, (0, y), xytext=(3, 0), textcoords="offset points", fontsize=6.5,
                  va="center", color="white")  # fmt: skip


def _label(axes: Any, x: float, y: float, found: Spread, star: str) -> None:
    axes.annotate(f"{numbers.quantity(1e3 * found.mean)}{star}", (x, y), xytext=(3, 0), fontsize=8,
                  textcoords="offset points", va="center")  # fmt: skip


def _legend(made: Any, words: Words, base: bool) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=COLORS[k], label=words(f"scaling.part.{k}")) for k in PARTS]
    if base:
        handles.insert(0, Patch(color=WHOLE, label=words("splits.part.whole")))
    made.legend(handles=handles, loc="outside upper left", ncols=len(handles), handlelength=1.3,
                columnspacing=1.1)  # fmt: skip
