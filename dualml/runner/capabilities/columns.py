"""The table of capabilities: one column per backend and device, merged from the results of its
ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dualml.backend import BackendInfo
from dualml.common.errors import TrialError, Unsupported, UserError
from dualml.common.json_types import JsonObject
from dualml.common.machine import query_gpus
from dualml.launch.ranks import run_ranks

#: Seconds that a rank waits for another, and that one backend may take in total.
TIMEOUT, LIMIT = 20.0, 120.0


@dataclass(frozen=True)
class ProbeResult:
    """Result for one primitive with one dtype and operation; ``kind`` is that of the
    implementation, or ``failed``."""

    kind: str
    detail: str


@dataclass
class CapabilityColumn:
    """Results for one backend on one device.

    Attributes:
        backend, device: that were probed.
        requested: whether the device has to be there (the CPU, or one that the user asked for), so
            that its absence is a failure.
        reason: why nothing could be tried; None where it could.
        seconds: that probing took.
        entries: primitive → dtype → operation (``""`` where there is none) → result.
    """

    backend: str
    device: str
    requested: bool = True
    reason: str | None = None
    seconds: float = 0.0
    entries: dict[str, dict[str, dict[str, ProbeResult]]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether no primitive failed; where nothing could be tried, whether the device was not
        `requested`."""
        if self.reason is not None:
            return not self.requested
        return all(
            entry.kind != "failed" for name in self.entries for entry in self.results_of(name)
        )

    def results_of(self, primitive: str) -> list[ProbeResult]:
        """Return the results of a primitive for all dtypes and operations, in one list."""
        return [e for ops in self.entries[primitive].values() for e in ops.values()]

    def summary(self, primitive: str) -> ProbeResult:
        """Return the cell of the table: the first failure, else the first result of the kind that
        most dtypes and operations have."""
        entries = self.results_of(primitive)
        kinds = [entry.kind for entry in entries]
        kind = "failed" if "failed" in kinds else max(kinds, key=kinds.count)
        return next(entry for entry in entries if entry.kind == kind)

    def differing_types(self, primitive: str) -> dict[str, list[str]]:
        """Return kind → dtypes (with operations, unless all of a dtype) that differ from
        `summary`."""
        usual, types = self.summary(primitive).kind, dict[str, list[str]]()
        for dtype, ops in self.entries[primitive].items():
            for kind in sorted({e.kind for e in ops.values()} - {usual}):
                some = [op for op, entry in ops.items() if entry.kind == kind]
                name = dtype if len(some) == len(ops) else f"{dtype} {'/'.join(some)}"
                types.setdefault(kind, []).append(name)
        return types

    def describe(self) -> JsonObject:
        """Return the column as JSON values: ``backend``, ``device``, ``reason``, ``ok``,
        ``seconds``, and ``primitives``: name → summary, ``differing`` types and all results."""
        rows = {
            name: asdict(self.summary(name))
            | {
                "differing": self.differing_types(name),
                "dtypes": {
                    dtype: {op: asdict(entry) for op, entry in ops.items()}
                    for dtype, ops in self.entries[name].items()
                },
            }
            for name in self.entries
        }
        return {
            "backend": self.backend,
            "device": self.device,
            "reason": self.reason,
            "ok": self.ok,
            "seconds": round(self.seconds, 2),
            "primitives": rows,
        }


def probe_backends(
    chosen: Sequence[BackendInfo],
    devices: Sequence[str] | None = None,
    ranks: int = 2,
    progress: Callable[[str], None] = lambda text: None,
) -> list[CapabilityColumn]:
    """Probe every backend that has ranks on each device; return one column for each. One whose
    ranks are threads is probed on the CPU only.

    Args:
        chosen: the backends.
        devices: values of ``--device``; None means the CPU, and the GPU where there is one.
        ranks: number of ranks.
        progress: called with the name of what is probed next.

    Raises:
        UserError: fewer than two ranks, which have nothing to exchange.
    """
    if ranks < 2:
        raise UserError(f"--ranks must be at least 2; received {ranks}")
    asked = devices is not None
    columns = []
    for info in chosen:
        for device in devices or ["cpu", *(["gpu"] if query_gpus()[0] else [])]:
            if info.ranks == "none" or (info.ranks == "threads" and device not in ("cpu", "auto")):
                continue
            progress(f"{info.name} ({device})")
            columns.append(_column(info, device, ranks, asked or device == "cpu"))
    return columns


def _column(info: BackendInfo, device: str, ranks: int, asked: bool) -> CapabilityColumn:
    """Run all primitives of one backend on one device with ``ranks`` ranks; return the column, with
    the reason if they could not run."""
    column, begin = CapabilityColumn(info.name, device, asked), time.perf_counter()
    try:
        results = run_ranks(
            info.name,
            ranks,
            "dualml.runner.capabilities.probe:probe",
            device=device,
            timeout=TIMEOUT,
            limit=LIMIT,
        )
    except (TrialError, Unsupported, UserError) as error:
        column.reason = str(error)
    else:
        column.entries, column.device = merge_ranks(results), results[0]["device"]
    column.seconds = time.perf_counter() - begin
    return column


def merge_ranks(results: Sequence[dict[str, Any]]) -> dict[str, dict[str, dict[str, ProbeResult]]]:
    """Merge the results of the ranks, as `probe` returned them in the order of ranks, to primitive
    → dtype → operation → result: that of the first rank on which it failed, else rank 0's."""
    merged: dict[str, dict[str, dict[str, ProbeResult]]] = {}
    for rank, result in enumerate(results):
        for name, dtype, op, kind, detail in result["entries"]:
            known = merged.setdefault(name, {}).setdefault(dtype, {})
            if kind == "failed" and known.get(op, ProbeResult("", "")).kind != "failed":
                known[op] = ProbeResult(kind, f"rank {rank}: {detail}")
            known.setdefault(op, ProbeResult(kind, detail))
    return merged
