"""The collectives alone: who is fastest where, what a message and a byte cost, what went wrong."""

from __future__ import annotations

from itertools import combinations, pairwise
from statistics import median

from dualml.report import fits, numbers
from dualml.report.analysis.base import Finding, Notes
from dualml.report.collective_tables import closed, counted, wire_ratio
from dualml.report.collectives import Measured, measured, size_of
from dualml.report.model import Run
from dualml.report.words import Words

EXTRA = 1.25  # times the closed form's bytes from which the surplus is told


def collectives(run: Run, words: Words) -> list[Finding]:
    notes = Notes(words, "collectives")
    found = measured(run)
    for m in found:
        _fastest(notes, words, m)
        _crossover(notes, run, m)
    # Threads that hand over pointers are no framework to compare with.
    backends = dict.fromkeys(m.backend for m in found if not m.threads)
    for a, b in combinations(backends, 2):
        _backends(notes, words, found, a, b)
    _bytes(notes, words, found)
    _fits(notes, run, words)
    _checks(notes, run)
    return notes


def winners(m: Measured) -> list[tuple[str, int, int]]:
    """Ranges of sizes with one fastest strategy: its name, the first and the last size."""
    found: list[tuple[str, int, int]] = []
    for size in m.sizes:
        timed = {s: t for s in m.exact() if (t := m.seconds(s, size)) is not None}
        if not timed:
            continue
        best = min(timed, key=lambda s: timed[s])
        if found and found[-1][0] == best:
            found[-1] = (best, found[-1][1], size)
        else:
            found.append((best, size, size))
    return found


def close(m: Measured) -> int:
    """Sizes at which another strategy's quartiles reach down to those of the fastest."""
    told = 0
    for size in m.sizes:
        rows = sorted(
            (m.rows[s, size] for s in m.exact() if (s, size) in m.rows), key=lambda r: r["seconds"]
        )
        told += len(rows) > 1 and any(r["low"] <= rows[0]["high"] for r in rows[1:])
    return told


def _fastest(notes: Notes, words: Words, m: Measured) -> None:
    ranges = winners(m)
    if not ranges or len(m.exact()) < 2:
        return
    listed = [
        words(
            "say.collectives.at" if first == last else "say.collectives.range",
            strategy=strategy,
            first=size_of(first),
            last=size_of(last),
        )
        for strategy, first, last in ranges
    ]
    notes.say("fastest", backend=m.backend, n=m.n, values=words.semicolons(listed))
    near = close(m)
    if near:
        notes.warn("close", near, backend=m.backend, n=m.n, k=near, of=len(m.sizes))
    size = m.sizes[-1]
    best, copy = ranges[-1][0], m.copies.get(size)
    seconds = m.seconds(best, size)
    if copy and seconds:
        notes.say(
            "copy",
            backend=m.backend,
            n=m.n,
            strategy=best,
            size=size_of(size),
            times=numbers.factor(seconds / copy),
        )


def crossing(m: Measured, few: str, little: str) -> tuple[int, int] | None:
    """The last size at which ``few`` (messages) is faster, and the first from which ``little``
    (bytes) is at every larger one; None without a change."""
    sign = [
        (size, a < b)
        for size in m.sizes
        if (a := m.seconds(few, size)) is not None and (b := m.seconds(little, size)) is not None
    ]
    flips = [k for k in range(1, len(sign)) if sign[k - 1][1] != sign[k][1]]
    if len(flips) != 1 or not sign[0][1]:
        return None
    return sign[flips[0] - 1][0], sign[flips[0]][0]


def _crossover(notes: Notes, run: Run, m: Measured) -> None:
    """Few messages against few bytes: the tree against the ring."""
    few, little = "tree", "ring"
    seen = crossing(m, few, little)
    if seen is not None:
        notes.say("crossover", backend=m.backend, n=m.n, few=few, little=little,
                  low=size_of(seen[0]), high=size_of(seen[1]))  # fmt: skip
    found = fits.fit_of(run, m.backend, m.n, few)
    other = fits.fit_of(run, m.backend, m.n, little)
    if found is None or other is None:
        return
    sizes = [4 * 2**k for k in range(4, 31)]
    for small, large in pairwise(sizes):
        before, after = (
            (fits.seconds(found, few, m.n, s), fits.seconds(other, little, m.n, s))
            for s in (small, large)
        )
        if None not in (*before, *after) and before[0] < before[1] and after[0] >= after[1]:  # type: ignore[operator]
            notes.say("crossover_fit", backend=m.backend, n=m.n, few=few, little=little,
                      low=size_of(small), high=size_of(large))  # fmt: skip
            return


def _backends(notes: Notes, words: Words, found: list[Measured], a: str, b: str) -> None:
    """Median over strategies and sizes of the ratio of times, by number of ranks."""
    mine, theirs = ({m.n: m for m in found if m.backend == x} for x in (a, b))
    for n in sorted(mine.keys() & theirs.keys()):
        ratios = {
            key: float(theirs[n].rows[key]["seconds"]) / float(row["seconds"])
            for key, row in mine[n].rows.items()
            if key in theirs[n].rows and row["seconds"]
        }
        if not ratios:
            continue
        typical = median(ratios.values())
        slow, fast = (b, a) if typical >= 1 else (a, b)
        told = {k: v if typical >= 1 else 1 / v for k, v in ratios.items() if v}
        low, high = (f(told, key=lambda k: told[k]) for f in (min, max))
        notes.say(
            "backends",
            n=n,
            slow=slow,
            fast=fast,
            typical=numbers.factor(median(told.values())),
            low=numbers.factor(told[low]),
            low_at=f"{low[0]}, {size_of(low[1])}",
            high=numbers.factor(told[high]),
            high_at=f"{high[0]}, {size_of(high[1])}",
        )


def _bytes(notes: Notes, words: Words, found: list[Measured]) -> None:
    same = total = 0
    for m in found:
        for strategy, size in m.rows:
            ours, told = counted(m, strategy, size), closed(m, strategy, size)
            if m.rows[strategy, size].get("counted") and ours is not None and told is not None:
                total += 1
                same += ours[1] == told[1] and ours[2] == told[2]
    if total:
        notes.say("counted", total, k=same, of=total)
    for m in found:
        size = m.sizes[-1]
        ratios = {s: r for s in m.strategies if (r := wire_ratio(m, s, size)) is not None}
        more = {s: r for s, r in ratios.items() if r > EXTRA}
        if more:
            ordered = sorted(more, key=lambda s: -more[s])
            listed = [f"{s} × {numbers.factor(more[s])}" for s in ordered]
            notes.say("wire_more", backend=m.backend, n=m.n, size=size_of(size),
                      values=words.join(listed))  # fmt: skip
        elif ratios:
            notes.say("wire_same", backend=m.backend, n=m.n, size=size_of(size),
                      most=numbers.factor(max(ratios.values())))  # fmt: skip


def _fits(notes: Notes, run: Run, words: Words) -> None:
    for f in run.cost.get("fits") or ():
        link = (f.get("fit") or {}).get("link")
        if link and f.get("strategy") is None and link["beta_s_per_byte"]:
            alpha, beta = link["alpha_s"], link["beta_s_per_byte"]
            notes.say(
                "fit",
                backend=f["backend"],
                n=f.get("world_size") or numbers.NONE,
                alpha=numbers.quantity(1e6 * alpha),
                rate=numbers.quantity(1e-9 / beta),
                half=size_of(alpha / beta) if alpha else "0 B",
                error=numbers.percent(f["fit"].get("median_error")),
            )


def _checks(notes: Notes, run: Run) -> None:
    found = [c for c in fits.checks(run) if c["measured_s"] and c["predicted_s"]]
    if found:
        ratios = [c["predicted_s"] / c["measured_s"] for c in found]
        inside = sum(0.5 <= r <= 2 for r in ratios)
        worst = max(found, key=lambda c: max(r := c["predicted_s"] / c["measured_s"], 1 / r))
        notes.say(
            "checks",
            len(found),
            k=len(found),
            inside=inside,
            typical=numbers.factor(median(ratios)),
            worst=numbers.factor(worst["predicted_s"] / worst["measured_s"]),
            at=f"{worst['strategy']}, {worst['backend']}, n = {worst['world_size']}, "
            f"{size_of(worst['bytes'])}",
        )
