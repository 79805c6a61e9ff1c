"""Run one function on n ranks of a backend and collect what they return."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dualml.backend import backends
from dualml.common.errors import TrialError, Unsupported, UserError
from dualml.common.files import write_json
from dualml.common.machine import python_argv
from dualml.launch.process import Launch
from dualml.launch.supervise import GroupResult, describe_exit, last_lines, supervise

#: Minimum free bytes that ranks need for logs and the rendezvous.
MIN_FREE_BYTES = 64 * 1024


def run_ranks(
    backend: str,
    size: int,
    target: str,
    argument: Any = None,
    *,
    device: str = "cpu",
    threads: int = 1,
    timeout: float = 60.0,
    limit: float = 300.0,
    check: bool = False,
    rendezvous: str = "auto",
    folder: Path | None = None,
) -> list[Any]:
    """Call ``function(communicator, argument)`` on every rank, and return the results by rank.

    Where ranks are threads, ``device``, ``threads``, ``limit``, ``rendezvous`` and ``folder`` are
    ignored, and what a rank raises is passed on.

    Args:
        backend: its name.
        size: number of ranks.
        target: ``"module:function"``, importable by the ranks (threads of this process for backends
            that have no process groups, processes otherwise).
        argument: any JSON value; the results must be JSON values, too.
        device: ``cpu``, ``cuda``, …
        threads: compute threads of each rank.
        timeout: seconds a rank waits for another.
        limit: seconds all of it may take.
        check: compare the signature of every collective, see `RankContext`.
        rendezvous: see `RankContext`.
        folder: for the logs and the store; by default a temporary one.

    Raises:
        UserError: ``size`` is below 1.
        Unsupported: the backend cannot run as requested.
        TrialError: a rank failed; the text names it and its reason.
    """
    if size < 1:
        raise UserError(f"a group needs at least one rank; received {size}")
    info = backends()[backend]
    if info.ranks == "threads":
        from dualml.backend.reference.communicator import run_threads

        module, _, name = target.partition(":")
        function = getattr(importlib.import_module(module), name)
        return run_threads(size, lambda comm: function(comm, argument), timeout, check)
    with rank_folder(folder) as where:
        job = {
            "backend": backend,
            "size": size,
            "target": target,
            "argument": argument,
            "device": device,
            "threads": threads,
            "timeout": timeout,
            "check": check,
            "rendezvous": rendezvous,
        }
        write_json(where / "job.json", job)
        environ = info.environ(threads)
        launches = [
            Launch(
                python_argv("-m", "dualml.launch.rank", str(where), str(rank)),
                environ,
                where / f"rank{rank}.log",
                info.preload,
            )
            for rank in range(size)
        ]
        ended = supervise(launches, lambda rank, event: None, limit=limit, silence=limit)
        if ended.code or ended.reason:
            raise failure_error(ended, where)
    return [ended.results[rank]["value"] for rank in range(size)]


@contextlib.contextmanager
def rank_folder(folder: Path | None) -> Iterator[Path]:
    """Provide the folder, made if it is missing, inside the block; if it is None a temporary one,
    which is deleted afterwards."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="dualml-ranks-") as temporary:
        yield Path(temporary)


def failure_error(ended: GroupResult, folder: Path) -> Exception:
    """Return, without raising it, the error that describes how the rank at fault ended.

    Args:
        ended: result of the group, with a failure.
        folder: holds the ranks' logs.
    """
    result = ended.results.get(ended.rank, {})
    if result.get("status") == "unsupported":
        return Unsupported(str(result["reason"]))
    why = ended.reason or result.get("reason") or describe_exit(ended.code)
    lines = last_lines(folder / f"rank{ended.rank}.log") if not result else []
    left = shutil.disk_usage(folder).free
    if left < MIN_FREE_BYTES:  # also where a library ends without a word
        lines = [
            f"{folder} has {left:,} bytes left: free some space, or name another folder with TMPDIR"
        ]
    return TrialError("; ".join([f"rank {ended.rank}: {why}", *lines]))
