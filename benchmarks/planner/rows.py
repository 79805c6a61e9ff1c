"""Published training runs: layouts with their times and memories, and the half a source belongs to.

``published/*.toml`` holds one source per file. A table has values that all its rows share, and a
list of columns; 0 and an empty text mean "not published".
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from dualml.planning.cost import units
from planner.sizes import count_operations, find_sizes

FOLDER = Path(__file__).parent / "published"
#: Tokens of a sequence from which a run belongs to the family "long context".
LONG_SEQUENCE = 16384
#: Recomputation as published: ``selective`` recomputes attention, ``operations`` everything but
#: the products.
RECOMPUTED = ("", "none", "selective", "operations", "full")
LOW_PRECISION = ("fp8", "mxfp8")


@dataclass(frozen=True)
class PublishedRow:
    """One published run. Numbers that were not published are 0, texts empty.

    Attributes:
        source: name of the source; its hash decides the half.
        address: where the source can be read.
        software: what trained the model.
        where: table of the source.
        number: number of the row in its source, from 1.
        model, sizes: the model's name and its sizes, with the row's own values.
        system: what the source calls the run.
        device: name of the device; ``memory_limit``, ``hbm``, ``inside`` and ``between`` replace
            its memory and rates.
        devices: number of devices.
        batch: sequences of an update.
        pp, tp, cp, ep, etp, replicate, zero, reshard, micro, chunks, sp, recompute: the layout;
            see `dualml.planning.planner.layouts.Layouts`.
        attention: ``stored``, or ``flash2``, or ``fused`` where the kernel is not stated.
        precision: type of the products.
        weights, gradients, states: types in which they are kept, where it is not what the software
            does by itself; gradients are summed in theirs.
        overlap: whether the source says that messages between replicas hide behind computation.
        async_tp: whether tensor-parallel messages do.
        drops: whether experts drop tokens.
        seconds: of an update; 0: not published.
        memory: bytes on the fullest device; 0: not published.
        memory_kind: what counted them: ``allocated``, ``reserved``, ``nvidia-smi`` or ``unstated``.
        oom: whether the run was out of memory.
        sweep: name of the sweep it belongs to.
        chosen: whether its authors chose this layout.
    """

    source: str
    address: str
    software: str
    where: str
    number: int
    model: str
    sizes: Mapping[str, Any]
    device: str
    devices: int
    batch: int
    pp: int
    tp: int
    zero: int
    micro: int
    attention: str
    precision: str
    recompute: str
    system: str = ""
    cp: int = 1
    ep: int = 1
    etp: int = 0
    replicate: int = 1
    reshard: bool = True
    chunks: int = 1
    sp: bool = False
    weights: str = ""
    gradients: str = ""
    states: str = ""
    overlap: bool = False
    async_tp: bool = False
    drops: bool = False
    memory_limit: float = 0.0
    hbm: float = 0.0
    inside: float = 0.0
    between: float = 0.0
    seconds: float = 0.0
    memory: float = 0.0
    memory_kind: str = ""
    oom: bool = False
    sweep: str = ""
    chosen: bool = False
    line: int = 0

    @property
    def name(self) -> str:
        """Name of the row, ``SOURCE/NUMBER``."""
        return f"{self.source}/{self.number}"

    @property
    def dp(self) -> int:
        """Data parallelism: devices of the layout that have samples of their own."""
        return self.devices // (self.pp * self.tp * self.cp)

    @property
    def sequence(self) -> int:
        """Tokens of a sequence."""
        return int(self.sizes["sequence"])

    @property
    def family(self) -> str:
        """Family in which the row is judged: the first that it belongs to."""
        if self.sizes.get("experts"):
            return "mixture of experts"
        if self.precision in LOW_PRECISION:
            return "fp8"
        if self.sequence >= LONG_SEQUENCE:
            return "long context"
        return "fully sharded" if self.zero == 3 else "dense 3D"

    @property
    def layout(self) -> str:
        """The layout as text, for example ``dp 8 · pp 12 · tp 4, ZeRO-1, b 2``."""
        axes = [("dp", self.dp), ("pp", self.pp), ("tp", self.tp), ("cp", self.cp), ("ep", self.ep)]
        mesh = " · ".join(f"{key} {value}" for key, value in axes[:3])
        mesh += "".join(f" · {key} {value}" for key, value in axes[3:] if value > 1)
        more = [f"ZeRO-{self.zero}"] if self.zero else []
        more += [f"b {self.micro}"] if self.micro else []
        more += [f"v {self.chunks}"] if self.chunks > 1 else []
        more += [self.recompute] if self.recompute else []
        return ", ".join([mesh, *more])


def is_fitted(source: str) -> bool:
    """Return whether constants may be fitted to the rows of a source; its name's hash decides."""
    return hashlib.sha256(source.encode()).digest()[0] % 2 == 0


@cache
def all_rows() -> tuple[PublishedRow, ...]:
    """Return the rows of all sources, by the names of their files."""
    return tuple(row for path in sorted(FOLDER.glob("*.toml")) for row in read_source(path))


def fitted_rows() -> tuple[PublishedRow, ...]:
    """Return the rows of the sources to which constants may be fitted."""
    return tuple(row for row in all_rows() if is_fitted(row.source))


def held_out_rows() -> tuple[PublishedRow, ...]:
    """Return the rows of the sources that only judge."""
    return tuple(row for row in all_rows() if not is_fitted(row.source))


def read_source(path: Path) -> list[PublishedRow]:
    """Read the rows of one source's file.

    Raises:
        ValueError: a source that was not read, a file named otherwise than its source, an unknown
            column, or a layout that does not multiply to its devices.
    """
    given = tomllib.loads(path.read_text("utf-8"))
    if not given.get("read"):
        raise ValueError(f"{path}: read = true must say that its figures were read there")
    if given["name"] != path.stem:
        raise ValueError(f"{path}: name = {given['name']!r}; the file is named after its source")
    shared = {key: given[key] for key in ("address", "software")} | {"source": given["name"]}
    rows = []
    for values in _table_rows(given["table"], path):
        rows.append(_make_row({**shared, **values, "number": len(rows) + 1}, path))
    return rows


def _table_rows(tables: list[Any], path: Path) -> Iterator[dict[str, Any]]:
    """Yield the values of each row of the tables, with those that its table shares."""
    for table in tables:
        shared = {key: value for key, value in table.items() if key not in ("columns", "rows")}
        line, chosen = shared.pop("chosen_line", -1), shared.pop("chosen_row", 0)
        for number, row in enumerate(table["rows"], 1):
            if len(row) != len(table["columns"]):
                raise ValueError(f"{path}: {table['where']}, row {number} has {len(row)} values")
            values = shared | dict(zip(table["columns"], row, strict=True))
            picked = values.get("line") == line or number == chosen
            yield {**values, "chosen": picked or values.get("chosen", False)}


def _make_row(values: dict[str, Any], path: Path) -> PublishedRow:
    """Make a row of its values: sizes are taken out, quantities parsed, seconds derived."""
    sizes = find_sizes(values["model"], values)
    for key in ("layers", "hidden", "heads", "vocabulary", "sequence"):
        values.pop(key, None)
    for key, parse in (
        ("memory_limit", units.parse_bytes),
        ("hbm", units.parse_rate),
        ("inside", units.parse_rate),
        ("between", units.parse_rate),
    ):
        if key in values:
            values[key] = float(parse(values[key]))
    for unit, factor in (("memory_gib", 2**30), ("memory_mib", 2**20), ("memory_gb", 1e9)):
        values["memory"] = values.pop(unit, 0) * factor or values.get("memory", 0.0)
    values["seconds"] = _seconds(values, sizes)
    unknown = set(values) - {field.name for field in fields(PublishedRow)}
    if unknown:
        raise ValueError(f"{path}: unknown columns {', '.join(sorted(unknown))}")
    row = PublishedRow(sizes=sizes, **values)
    if row.dp * row.pp * row.tp * row.cp != row.devices or row.recompute not in RECOMPUTED:
        raise ValueError(f"{path}: {row.where}: {row.layout} is no layout of {row.devices} devices")
    return row


def _seconds(values: dict[str, Any], sizes: Mapping[str, Any]) -> float:
    """Take the published speed out of the values and return seconds of an update, 0 without one.

    ``tokens`` a second and device, ``samples`` a second, ``teraflops`` a device or ``mfu`` of the
    ``peak``, whose operations are counted as ``counted`` says.
    """
    tokens, samples = values.pop("tokens", 0), values.pop("samples", 0)
    flops = values.pop("teraflops", 0) * 1e12
    peak = units.parse_flops(values.pop("peak")) if "peak" in values else 0.0
    flops = flops or values.pop("mfu", 0.0) * peak
    counted = values.pop("counted", "")
    update = values["batch"] * sizes["sequence"]
    if tokens:
        return float(update / (tokens * values["devices"]))
    if samples:
        return float(values["batch"] / samples)
    if flops:
        return float(update * count_operations(sizes, counted) / (flops * values["devices"]))
    return float(values.get("seconds", 0.0))
