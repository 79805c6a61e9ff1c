"""Graphs cached on disk: nine tenths of a compilation are done once per graph.

MindSpore can store what its front end makes of a cell, but finds it again by its number in the
order of compilations, whatever the cell: measured, a cell of ``x * 2`` got the graph of ``x + 1``
of the program's last version. So the files are stored here by `fingerprint`, and put where
MindSpore looks for the next number only if they belong to that very graph.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mindspore as ms
from filelock import FileLock, Timeout
from mindspore import nn
from mindspore.common import api
from mindspore.communication import GlobalComm, get_rank

from dualml.common import machine
from dualml.common.files import write_bytes
from dualml_ms.common.fingerprint import fingerprint

ENABLE, PATH = "MS_COMPILER_CACHE_ENABLE", "MS_COMPILER_CACHE_PATH"
#: ``off``: every graph is compiled.
VARIABLE = "DUALML_MINDSPORE_GRAPHS"
#: Largest number of cached graphs; all labs with ``--quick`` make 133. A graph has 10 to 300 kB.
MAX_FILES = 1000
HASH = "compile_dependency.hash"
#: Placeholder of a graph that is not cached yet.
NO_GRAPH = b"none"
DAY = 86400.0
#: Seconds after which a process compiles a graph although another one is compiling it, too.
WAIT_S = 30.0
#: Seconds between two looks whether the other process is done.
POLL_S = 0.02


class GraphCache:
    """A folder of cached graphs (what MindSpore's compiler makes of a cell), used by one process;
    it sets MindSpore's cache path in the environment.

    Args:
        folder: created if necessary.

    Attributes:
        loaded: number of calls whose graph was cached.
        compiled: number of calls whose graph was compiled and then cached.
        skipped: reasons of calls that were compiled without caching.
    """

    def __init__(self, folder: Path) -> None:
        # Before it loads a graph, MindSpore checks whether the program's files are unchanged, which
        # is both too weak and too strict; one file that never changes replaces them.
        program = api._get_compile_cache_dep_files.__globals__
        if "entry_script_path" not in program:
            raise AttributeError("this MindSpore looks elsewhere for the program's files")
        self.folder, self.number = folder, 0
        self.loaded, self.compiled, self.skipped = 0, 0, list[str]()
        folder.mkdir(parents=True, exist_ok=True)
        if not (entry := folder / "program.py").exists():
            write_bytes(entry, b"graphs = 'kept by what they are made from'\n")
        program["entry_script_path"] = str(entry)
        # MindSpore reads this name once; the folder exists only during compilations.
        self.local = folder / f"compiling-{os.getpid()}-{secrets.token_hex(4)}"
        os.environ[PATH] = str(self.local)

    @contextlib.contextmanager
    def cache_call(self, cell: nn.Cell, tensors: Sequence[Any]) -> Iterator[None]:
        """Cache the graph of the first call of ``cell`` with tensors of these shapes and types,
        made inside the block; if that is impossible, note why in `skipped` and let the block
        compile."""
        with contextlib.ExitStack() as stack:
            try:
                file = self.folder / f"{fingerprint(cell, tensors)}.mindir"
                stack.enter_context(compile_once(file))
                next_graph, program_hash = self.graph_paths()
                before = self.offer_graph(file, next_graph, program_hash)
            except Exception as error:  # no space, or unknown content: compile without cache
                self.skipped.append(str(error))
                yield
                return
            self.number += 1
            os.environ[ENABLE] = "1"
            try:
                yield
            finally:
                del os.environ[ENABLE]
                with contextlib.suppress(OSError):
                    self.store_graph(file, before, next_graph, program_hash)
                shutil.rmtree(self.local, ignore_errors=True)

    def graph_paths(self) -> tuple[Path, Path]:
        """Create this process's folder for the next compilation; return the paths where MindSpore
        looks for the next graph and the program's hash."""
        rank, role = (get_rank(), "MS_WORKER") if GlobalComm.INITED else (0, "")
        folder = self.local / f"rank_{rank}" / "graph_cache"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{role}compile_cache_{self.number}.mindir", folder / f"{role}{HASH}"

    def offer_graph(self, file: Path, next_graph: Path, program_hash: Path) -> bytes:
        """Copy the cached graph ``file`` to ``next_graph``, where MindSpore looks for it; return
        its bytes, or `NO_GRAPH` if it does not exist."""
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(self.folder / HASH, program_hash)
        try:
            content = file.read_bytes()
            os.utime(file)  # the least recently used files are removed
        except FileNotFoundError:
            content = NO_GRAPH  # without any file MindSpore stops looking in this process
        next_graph.write_bytes(content)
        return content

    def store_graph(self, file: Path, before: bytes, next_graph: Path, program_hash: Path) -> None:
        """Store the graph that MindSpore has left at ``next_graph`` in ``file`` if it was newly
        compiled; if it is the one that was offered, only count the call as loaded, or as skipped if
        there is none."""
        after = next_graph.read_bytes()
        if after == before:
            if before == NO_GRAPH:
                self.skipped.append(f"MindSpore made no {next_graph.name}")
            else:
                self.loaded += 1
            return
        self.compiled += 1
        write_bytes(file, after)
        write_bytes(self.folder / HASH, program_hash.read_bytes())
        self.prune()

    def prune(self) -> None:
        """Remove the least recently used graphs beyond `MAX_FILES`, and folders of killed processes
        after a day."""
        files = sorted(self.folder.glob("*.mindir"), key=lambda p: p.stat().st_mtime)
        for path in files[: max(0, len(files) - MAX_FILES)]:
            path.unlink(missing_ok=True)
        for path in self.folder.glob("compiling-*"):
            if time.time() - path.stat().st_mtime > DAY:
                shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def compile_once(file: Path) -> Iterator[None]:
    """Let one process at a time compile the graph that belongs into ``file``.

    The ranks of a trial need the same graphs at the same time; all but the first then load what it
    has compiled. Nobody waits for a graph that exists, nor longer than `WAIT_S` for one that is
    being made. A graph contains no collective, so that no rank waits for another one inside.
    """
    lock = FileLock(file.with_suffix(".lock"), timeout=WAIT_S)
    if not file.exists():
        # Some file systems have no locks.
        with contextlib.suppress(Timeout, OSError, NotImplementedError):
            lock.acquire(poll_interval=POLL_S)
        if file.exists():
            lock.release()
    try:
        yield
    finally:
        if lock.is_locked:
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()


@functools.cache
def graph_cache() -> GraphCache | None:
    """Return this process's graph cache, which the first call makes: a folder on the disk, and
    MindSpore's cache path in the environment. None if ``DUALML_MINDSPORE_GRAPHS=off``, if the user
    already uses MindSpore's own cache, if nothing can be stored, or on accelerators, where it is
    untested."""
    cpu = ms.get_context("device_target") == "CPU"
    if os.environ.get(VARIABLE) == "off" or ENABLE in os.environ or not cpu:
        return None
    try:
        return GraphCache(machine.cache_dir() / f"mindspore-graphs-{ms.__version__}")
    except (AttributeError, ImportError, OSError, RuntimeError):
        return None
