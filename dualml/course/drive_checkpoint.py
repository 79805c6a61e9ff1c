"""Run a student's checkpoints: a training that saves and goes on, and another one that resumes."""

from __future__ import annotations

import contextlib
import resource
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dualml.course.shared_folder import FolderCommunicator, SharedFolder, read_facts
from dualml.course.tally import ALLOWED

Arrays = Mapping[str, Any]
#: Maximum bytes of a file while a full disk is simulated.
FULL_BYTES = 1000


@contextlib.contextmanager
def simulate_full_disk() -> Iterator[None]:
    """Make every file that grows beyond `FULL_BYTES` fail inside the block, by a limit of this
    process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FULL_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def run_checkpoint(
    make_training: Callable[[str, int], Any],
    make: Callable[[Any, str, Any], Any],
    options: Mapping[str, Any],
    comm: Any,
    gather: Callable[[Any], Any],
) -> dict[str, Any]:
    """Train, save twice, go on, and resume in another training.

    Args:
        make_training: (prefix of the arrays to begin with, seed) → training.
        make: (communicator, path, training) → the student's object.
        gather: function that returns every rank's NumPy array.

    Returns:
        ``saved/NAME`` and ``loaded/NAME``, the state before the second save and after the load;
        ``whole/7/NAME`` and ``7/NAME`` after update 7 of the first training and of the resumed one;
        ``progress/epoch`` and ``progress/step``; and of the second save its facts (`read_facts`),
        ``there``, whether this rank has rank 0's file, and ``waits``, its collectives that made
        ranks wait. With the option ``full`` only ``kept``, whether a save to a full disk leaves the
        checkpoint before, and the facts.
    """
    home = Path(tempfile.mkdtemp(dir=Path.cwd()))
    folder = SharedFolder(home, gather, comm.rank)
    path = home / "last.ckpt"
    given = FolderCommunicator(comm, ALLOWED["checkpoint"], folder)
    first = make_training("start", options["seeds"][comm.rank])
    own = make(given, str(path), first)
    progress = {"epoch": 0, "step": 0}
    for _ in range(options["early"]):
        progress = advance(first, comm, progress, options)
    own.save(dict(progress))
    folder.synchronize()
    while progress["step"] < options["updates"]:
        progress = advance(first, comm, progress, options)
    out = {f"saved/{n}": a for n, a in first.state().items()}
    before = checksum(path)
    folder.begin()
    given.waits = 0
    if options["full"]:
        with simulate_full_disk(), contextlib.suppress(Exception):
            own.save(dict(progress))
        return {"kept": np.asarray(int(checksum(path) == before)), **as_arrays(folder, path)}
    own.save(dict(progress))
    waits, facts = given.waits, as_arrays(folder, path)
    sums = [int(np.ravel(a)[0]) for a in gather(folder.announce(checksum(path)))]
    # The first checkpoint, still there, is not the one that was just written.
    out |= {
        **facts,
        "there": np.asarray(int(sums[comm.rank] == sums[0])),
        "waits": np.asarray(waits),
    }
    folder.synchronize()
    out |= resume(make_training, make, options, comm, given, path)
    for step in range(options["updates"] + 1, options["updates"] + options["more"] + 1):
        progress = advance(first, comm, progress, options)
        out |= {f"whole/{step}/{n}": a for n, a in first.values().items()}
    return out


def resume(
    make_training: Callable[[str, int], Any],
    make: Callable[[Any, str, Any], Any],
    options: Mapping[str, Any],
    comm: Any,
    given: Any,
    path: Path,
) -> dict[str, Any]:
    """Load a checkpoint into a fresh training and go on; return its state and progress, and the
    values after each update.

    Raises:
        TypeError: ``load`` returns no dict with ``epoch`` and ``step``.
    """
    second = make_training("fresh", options["fresh_seeds"][comm.rank])
    found = make(given, str(path), second).load()
    if not isinstance(found, Mapping) or not {"epoch", "step"} <= found.keys():
        what = f"a dict with {sorted(map(str, found))}" if isinstance(found, Mapping) else found
        raise TypeError(f"load has to return a dict with epoch and step; it returned {what!r:.80}")
    progress = {name: int(found[name]) for name in ("epoch", "step")}
    out = {f"loaded/{n}": a for n, a in second.state().items()}
    out |= {f"progress/{n}": np.asarray(value) for n, value in progress.items()}
    for step in range(options["updates"] + 1, options["updates"] + options["more"] + 1):
        progress = advance(second, comm, progress, options)
        out |= {f"{step}/{n}": a for n, a in second.values().items()}
    return out


def advance(
    training: Any, comm: Any, progress: Mapping[str, int], options: Mapping[str, Any]
) -> dict[str, int]:
    """Make one update and return the progress after it, ``epoch`` and ``step``; at the end of an
    epoch the learning rate is lowered by the factor ``decay`` in the option ``hyper``."""
    training.update(comm, progress["epoch"])
    step = progress["step"] + 1
    if step % options["epoch"]:
        return {"epoch": progress["epoch"], "step": step}
    training.lower_rate(options["hyper"]["decay"])
    return {"epoch": progress["epoch"] + 1, "step": step}


def checksum(path: Path) -> int:
    """Return a checksum of a file; −1 if there is none."""
    return zlib.crc32(path.read_bytes()) if path.is_file() else -1


def as_arrays(folder: SharedFolder, path: Path) -> dict[str, Any]:
    """Return the facts of a save (`read_facts`) as arrays."""
    return {name: np.asarray(value) for name, value in read_facts(folder, path).items()}
