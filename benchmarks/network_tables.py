"""The measurements of `network` as tables of the pages: analysis and text, no measuring."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import netbed
from pages import PAGES, milliseconds, replace_between_marks, size, table
from tables import words

from dualml.parallel.aggregation import STRATEGIES, CollectiveSchedule, strategy
from dualml.parallel.aggregation.straggler import Straggler
from dualml.planning.cost import Fits, Link, Point, Topology, fit_all, predict
from dualml.planning.cost.engines import schedule as engine_schedule

Record = Mapping[str, Any]
#: Header bytes of a TCP packet over IPv4 with time stamps: Ethernet 14, IP 20, TCP 32.
HEADERS = 66
#: Header bytes that count towards the MTU.
OPTIONS = 52
#: Engines that answer each message with a copy of it before the sender continues.
ECHO = ("mccl",)
LIMIT = 0.10
#: Mbit/s in the table of bytes; the line above it counts all.
BYTES_AT = 100
COST = [Path(__file__).parents[1] / "docs" / f"cost-measured{end}.md" for end in ("", ".zh")]


def message_schedule(case: Record, name: str) -> CollectiveSchedule:
    """Return the schedule of a strategy: the engine's known one, else the textbook's."""
    n = case["world_size"]
    way = strategy(name).for_nodes(case["ranks_per_node"])
    return engine_schedule(case["engine"], name, n) or way.schedule(n)


def expected(case: Record, row: Record) -> list[tuple[float, float]]:
    """Return the bytes that each rank sends and receives; counted if the messages are made one by
    one."""
    name, length = row["strategy"], row["bytes"] // 4
    if STRATEGIES[name].is_point_to_point:
        pairs = [(t["bytes_sent"], t["bytes_received"]) for t in row["traffic"]]
    else:
        way = message_schedule(case, name)
        ranks = range(case["world_size"])
        pairs = [
            (4 * way.sent_volume(r, length)[1], 4 * way.received_volume(r, length)[1])
            for r in ranks
        ]
    if case["engine"] in ECHO:
        return [(a + b, a + b) for a, b in pairs]
    return pairs


@dataclass(frozen=True)
class Bytes:
    """The bytes of one measurement: planned for all ranks, and sent by their interfaces.

    Attributes:
        worst: largest relative difference between payload and expected bytes, of any rank.
        more: largest relative excess of an interface's count, with headers, over the expectation.
    """

    name: str
    nbytes: int
    expected: float
    payload: float
    headers: float
    worst: float
    more: float

    @classmethod
    def from_record(cls, case: Record, row: Record) -> Bytes:
        """Make the entry of a measurement with one rank on each node."""
        due, ports = expected(case, row), row["ports"]
        pairs = [
            (p[f"bytes_{way}"] - HEADERS * p[f"packets_{way}"], p[f"bytes_{way}"], d[i])
            for p, d in zip(ports, due, strict=True)
            for i, way in enumerate(("sent", "received"))
        ]
        return cls(
            row["strategy"],
            row["bytes"],
            sum(d[0] for d in due),
            sum(a for a, *_ in pairs[::2]),
            HEADERS * sum(p["packets_sent"] for p in ports),
            max((abs(a / b - 1) for a, _, b in pairs if b), default=0.0),
            max((whole / b - 1 for _, whole, b in pairs if b), default=0.0),
        )


def fits_of(cases: Sequence[Record], rate: float, n: int) -> Fits:
    """Return the cost-model fits from the measurements on n nodes of that rate."""
    (case,) = (c for c in cases if c["world_size"] == n and c["mbit"][0] == rate)
    engine = case["engine"]
    points = [
        Point.from_measurement(r["strategy"], n, r["bytes"], r["seconds"], engine=engine)
        for r in case["rows"]
    ]
    return fit_all(points, engine=engine)


@dataclass(frozen=True)
class Check:
    """A measurement compared with a prediction from other measurements."""

    rate: float
    n: int
    name: str
    nbytes: int
    measured: float
    low: float
    high: float
    predicted: float

    @property
    def error(self) -> float:
        """Return (predicted − measured) / measured."""
        return self.predicted / self.measured - 1


def checks(cases: Sequence[Record]) -> Iterator[Check]:
    """Yield checks of all measurements with more nodes than the fits are from."""
    least = min(c["world_size"] for c in cases)
    for case in cases:
        n, rate = case["world_size"], case["mbit"][0]
        if n == least:
            continue
        fits = fits_of(cases, rate, least)
        for row in case["rows"]:
            name, nbytes = row["strategy"], row["bytes"]
            p = predict(name, n, nbytes, fits.link(name), width=4, engine=fits.engine)
            spread = row["seconds"], row["low"], row["high"]
            yield Check(rate, n, name, nbytes, *spread, p.seconds)


def of_other_sizes(told: Record) -> list[Check]:
    """Return checks of sizes that no fit is from, by the fits of the others."""
    cases = told["predictions"]
    least = min(c["world_size"] for c in cases)
    return list(checks([*(c for c in cases if c["world_size"] == least), *told["sizes"]]))


def slow_node_checks(told: Record) -> Iterator[tuple[Record, Check]]:
    """Yield, for each measurement with a slow node, the same one without it, and the check."""
    for case in told["slow"]:
        n, mbit = case["world_size"], case["mbit"]
        rank, rate = mbit.index(min(mbit)), max(mbit)
        fits = fits_of(told["predictions"], rate, min(c["world_size"] for c in told["predictions"]))
        (plain,) = (c for c in told["predictions"] if c["world_size"] == n and c["mbit"][0] == rate)
        payload = netbed.MTU - OPTIONS
        carries = min(mbit) * 1e6 / 8 * payload / (payload + HEADERS)
        base = {(r["strategy"], r["bytes"]): r for r in plain["rows"]}
        for row in case["rows"]:
            name, nbytes = row["strategy"], row["bytes"]
            link = fits.link(name)
            slow = Straggler(rank, bandwidth_bytes_per_s=carries)
            p = predict(name, n, nbytes, link, slow=slow, width=4, engine=fits.engine)
            check = Check(rate, n, name, nbytes, row["seconds"], row["low"], row["high"], p.seconds)
            yield base[name, nbytes], check


def levels(told: Record) -> Iterator[tuple[Record, Check, float]]:
    """Yield measurements with several ranks per node: the case, the check, and what leaves a node
    in units of S."""
    alone, *cases = told["levels"]
    inside = fit_all(
        [
            Point.from_measurement(r["strategy"], alone["world_size"], r["bytes"], r["seconds"])
            for r in alone["rows"]
        ]
    )
    for case in cases:
        k, n, rate = case["ranks_per_node"], case["world_size"], case["mbit"][0]
        between = fits_of(told["predictions"], rate, 2)
        for row in case["rows"]:
            name, nbytes = row["strategy"], row["bytes"]
            place = Topology("nodes", k, between.link(name), ports=1)
            link: Link = inside.link("ring")
            p = predict(name, n, nbytes, link, topology=place, width=4)
            spread = row["seconds"], row["low"], row["high"]
            left = max(q["bytes_sent"] - HEADERS * q["packets_sent"] for q in row["ports"])
            yield case, Check(rate, n, name, nbytes, *spread, p.seconds), left / nbytes


# --- tables ---------------------------------------------------------------------------------------


def percent(value: float, signed: bool = False) -> str:
    text = f"{100 * value:+.1f} %" if signed else f"{100 * value:.1f} %"
    return text.replace("-", "−")


def format_quartiles(c: Check) -> str:
    """Return the median with the quartiles as text."""
    low, high = (milliseconds(x).removesuffix(" ms") for x in (c.low, c.high))
    return f"{milliseconds(c.measured)} ({low} – {high})"


def bytes_table(told: Record, lang: str) -> str:
    say = words(lang)["network"]
    torch, ms = told["predictions"], told["mindspore"]
    every = [Bytes.from_record(c, r) for c in [*torch, *ms] for r in c["rows"]]
    rows = []
    for case in [*torch, *ms]:
        last = max(r["bytes"] for r in case["rows"])
        if case["mbit"][0] != BYTES_AT or case["world_size"] not in (2, 4):
            continue
        for row in case["rows"]:
            if row["bytes"] == last:
                b = Bytes.from_record(case, row)
                rows.append(
                    [
                        case["backend"],
                        str(case["world_size"]),
                        f"`{b.name}`",
                        say["counted" if STRATEGIES[b.name].is_point_to_point else "engine"],
                        f"{b.expected / b.nbytes:.3f} S",
                        f"{b.payload / b.nbytes:.3f} S",
                        percent(b.worst),
                        percent(b.headers / b.payload),
                    ]
                )
    lines = say["bytes"].format(
        count=len(every),
        worst=percent(max(b.worst for b in every)),
        median=percent(statistics.median(b.worst for b in every)),
        headers=percent(max(b.headers / b.payload for b in every)),
        more=percent(max(b.more for b in every)),
    )
    return f"{lines}\n\n" + table(
        say["bytes_head"], ["---", "--:", "---", "---"] + ["--:"] * 4, rows
    )


def summary(found: Sequence[Check]) -> dict[str, Any]:
    errors = [abs(c.error) for c in found]
    return {
        "count": len(errors),
        "within": sum(e <= LIMIT for e in errors),
        "median": percent(statistics.median(errors)),
        "worst": percent(max(errors)),
    }


def predictions_table(told: Record, lang: str) -> str:
    say, cases = words(lang)["network"], told["predictions"]
    every = list(checks(cases))
    lines = []
    for rate, n in sorted({(c.rate, c.n) for c in every}):
        found = [c for c in every if (c.rate, c.n) == (rate, n)]
        load = max(max(c["load"]) for c in cases if (c["mbit"][0], c["world_size"]) == (rate, n))
        lines.append(
            "- "
            + say["held_out"].format(
                **summary(found),
                rate=f"{rate:g}",
                n=n,
                load=f"{load:.1f}",
            )
        )
    other = of_other_sizes(told)
    for rate, nbytes in sorted({(c.rate, c.nbytes) for c in other}):
        found = [c for c in other if (c.rate, c.nbytes) == (rate, nbytes)]
        worst = max(found, key=lambda c: abs(c.error))
        lines.append(
            "- "
            + say["other_size"].format(
                **summary(found),
                rate=f"{rate:g}",
                size=size(nbytes),
                name=worst.name,
                n=worst.n,
            )
        )
    sizes = {rate: {c.nbytes for c in every if c.rate == rate} for rate in {c.rate for c in every}}
    rows = [
        [
            f"{c.rate:g}",
            str(c.n),
            f"`{c.name}`",
            size(c.nbytes),
            format_quartiles(c),
            milliseconds(c.predicted),
            percent(c.error, signed=True),
        ]
        for c in every
        if c.nbytes in (min(sizes[c.rate]), max(sizes[c.rate]))
    ]
    align = ["--:", "--:", "---"] + ["--:"] * 4
    return "\n".join(lines) + "\n\n" + table(say["predictions_head"], align, rows)


def slow_table(told: Record, lang: str) -> str:
    say = words(lang)["network"]
    found = list(slow_node_checks(told))
    rows = [
        [
            f"`{c.name}`",
            size(c.nbytes),
            milliseconds(base["seconds"]),
            format_quartiles(c),
            milliseconds(c.predicted),
            percent(c.error, signed=True),
            f"{c.measured / base['seconds']:.1f}",
        ]
        for base, c in found
    ]
    return table(say["slow_head"], ["---"] + ["--:"] * 6, rows)


def levels_table(told: Record, lang: str) -> str:
    say = words(lang)["network"]
    found = list(levels(told))
    flat = {(id(case), c.nbytes): c.measured for case, c, _ in found if c.name == "ring"}
    rows = [
        [
            f"{case['nodes']} × {case['ranks_per_node']}",
            f"`{c.name}`",
            size(c.nbytes),
            f"{left:.2f} S",
            format_quartiles(c),
            milliseconds(c.predicted),
            percent(c.error, signed=True),
            f"{c.measured / flat[id(case), c.nbytes]:.2f}",
        ]
        for case, c, left in found
    ]
    return table(say["levels_head"], ["---", "---"] + ["--:"] * 6, rows)


def labs_table(told: Record, lang: str) -> str:
    say, rows = words(lang)["network"], []
    for ran in told["labs"]:
        verdicts = {c["arm"]: c["verdict"] for c in ran["pairs"]}
        for arm in dict.fromkeys(t["arm"] for t in ran["trials"]):
            own = [t for t in ran["trials"] if t["arm"] == arm]
            states = ", ".join(f"{t['backend']}: {say.get(t['status'], t['status'])}" for t in own)
            verdict = verdicts.get(arm, "")
            rows.append(
                [
                    ran["lab"],
                    f"`{arm}`",
                    str(own[0]["world_size"]),
                    states,
                    say.get(verdict.replace(" ", "_"), verdict),
                ]
            )
    return table(say["labs_head"], ["---", "---", "--:", "---", "---"], rows)


#: Table → function that makes it, the parts it needs, and its pages.
TABLES = {
    "network-bytes": (bytes_table, ("predictions", "mindspore"), PAGES),
    "network-slow": (slow_table, ("predictions", "slow"), PAGES),
    "network-levels": (levels_table, ("predictions", "levels"), PAGES),
    "network-labs": (labs_table, ("labs",), PAGES),
    "network": (predictions_table, ("predictions", "sizes"), COST),
}


def write(told: Record) -> None:
    """Write each table between its marks, on both languages' pages; what was not measured stays."""
    for name, (render, parts, pages) in TABLES.items():
        for path in pages if all(told.get(part) for part in parts) else ():
            lang = "zh" if path.name.endswith(".zh.md") else "en"
            page = replace_between_marks(path.read_text("utf-8"), name, render(told, lang))
            path.write_text(page, "utf-8")
