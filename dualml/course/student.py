"""The process of a student's code: ``python -m dualml.course.student FOLDER RANK``.

``FOLDER/job.json`` says what is called, ``FOLDER/in/CALL.RANK.npz`` with what; what comes of it
goes to ``FOLDER/out``. What is expected is nowhere in this process.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np

from dualml.course.guards import Forbidden, Guard, limit, ready_made
from dualml.launch.child import Emitter, serve
from dualml.launch.supervise import SECONDARY

#: Seconds that a call with several ranks may take, and a rank waits for another one. Who waits says
#: for whom; who holds it up is heard before it is ended (`dualml.launch.supervise.PEERS_S`).
RANKS_S, WAIT_S = 6.0, 5.0
#: Bytes of arrays that one call may return.
MOST = 64 << 20


class TimeUp(BaseException):
    """No `Exception`: a student's ``except Exception`` does not stop it."""


def work(emit: Emitter) -> dict[str, Any]:
    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    job = json.loads((folder / "job.json").read_text("utf-8"))
    drive = importlib.import_module(job["drive"])
    comm = joined(job, folder, rank, emit) if job["size"] > 1 or job["comm"] else None
    home = folder / "work"
    os.chdir(home)
    os.environ["TMPDIR"] = tempfile.tempdir = str(home)
    sys.path.insert(0, str(home))  # of several files, one may import another
    sys.dont_write_bytecode = True
    sys.stdin = open(os.devnull)  # noqa: SIM115
    # What the framework prints of its own accord goes to the log.
    sys.stdout = open(folder / f"printed{rank}", "w", 1, "utf-8", "replace")  # noqa: SIM115
    file = str(home / job["file"])
    files = [str(path) for path in home.rglob("*.py")]
    guard = Guard(files, home, folders(job["banned"]), job["banned"])
    limit(job["seconds"] * (len(job["calls"]) + 1))
    ready_made(sys.modules, job["ready_made"], lambda name: guard.refuse(name, line_in(file)))
    guard.install()
    signal.signal(signal.SIGALRM, time_up)
    module: ModuleType | None = None
    with trouble(emit, -1, guard, file, job["seconds"]):
        module = load(file)
    if module is None:
        return {}
    seconds = job["seconds"] if comm is None else min(job["seconds"], RANKS_S)
    slow: dict[str, dict[str, Any]] = {}
    for number, call in enumerate(job["calls"]):
        emit.send({"event": "trial", "call": number})
        if call["target"] in slow:  # once is enough
            emit.send({"event": "trouble", "call": number, **slow[call["target"]]})
            continue
        well = False
        with trouble(emit, number, guard, file, seconds) as (began, said):
            with np.load(folder / "in" / f"{number}.{rank}.npz", allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            run = getattr(drive, call["kind"])
            more = {} if comm is None else {"comm": comm}
            out = run(module, call["target"], call["options"], arrays, **more)
            save(folder / "out" / f"{number}.{rank}.npz", out)
            emit.send({"event": "answer", "call": number, "seconds": time.monotonic() - began})
            well = True
        if said.get("kind") == "timeout":
            slow[call["target"]] = said
        if comm is not None and not well and said.get("kind") != "unwritten":
            # Who knows where the other ranks are: they are ended, and a new group goes on.
            sys.stdout.flush()
            os._exit(1)
    if comm is not None:
        with contextlib.suppress(Exception):  # a rank that ends early fails another's last call
            comm.barrier()
            comm.close()
    return {}


def folders(packages: Sequence[str]) -> list[Path]:
    """Where this process finds packages, which may not be where the judge does."""
    return [Path(str(resources.files(package))) for package in packages]


def joined(job: dict[str, Any], folder: Path, rank: int, emit: Emitter) -> Any:
    """The communicator of this rank."""
    from dualml.backend import Grouping, backends
    from dualml.communicator import FileBoard, Place

    backend = backends()[job["backend"]].create("cpu", 1)
    place = Place(
        rank, job["size"], FileBoard(folder / "board"), timeout=WAIT_S, check=job["check"]
    )
    comm = backend.ability(Grouping).connect(place)
    emit.pulse(comm)
    return comm


def load(file: str) -> ModuleType:
    """The student's file as a module that nothing else imports by its name."""
    spec = importlib.util.spec_from_file_location("submitted", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["submitted"] = module
    spec.loader.exec_module(module)
    return module


def save(path: Path, arrays: Any) -> None:
    if not isinstance(arrays, dict):
        raise TypeError(f"expected arrays by name, received {type(arrays).__name__}")
    kept = {str(name): np.asarray(a) for name, a in arrays.items()}
    for name, a in kept.items():
        if a.dtype.kind not in "biuf":
            raise TypeError(f"{name} is {a.dtype}, not numbers")
    size = sum(a.nbytes for a in kept.values())
    if size > MOST:
        raise TypeError(f"{size:,} bytes were returned; at most {MOST:,} are read")
    np.savez(path, **kept)


@contextlib.contextmanager
def trouble(
    emit: Emitter, number: int, guard: Guard, file: str, seconds: float
) -> Iterator[tuple[float, dict[str, Any]]]:
    """Tell the judge what went wrong with a call, and go on; yields the time and what is told."""
    said: dict[str, Any] = {}
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield time.monotonic(), said
    except BaseException as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        said |= told(error, guard, file)
        names = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        waiting = any("communicator" in name.removeprefix(file) for name in names)
        if isinstance(error, TimeUp) and waiting:
            said |= {"kind": SECONDARY, "message": f"waited {seconds:g} s for another rank"}
        emit.send({"event": "trouble", "call": number, **said})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def told(error: BaseException, guard: Guard, file: str) -> dict[str, Any]:
    """An exception in the words of the judge."""
    if guard.first is not None:
        what, line = guard.first
        guard.first = None
        return {"kind": "forbidden", "message": what, "line": line}
    kinds = {NotImplementedError: "unwritten", TimeUp: "timeout", SyntaxError: "syntax"}
    kind = next((k for t, k in kinds.items() if isinstance(error, t)), type(error).__name__)
    line = getattr(error, "lineno", 0) or 0 if isinstance(error, SyntaxError) else 0
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame.lineno for frame in frames if frame.filename == file]
    message = str(error.msg if isinstance(error, SyntaxError) else error)
    # What MindSpore compiles has no frames; it writes a banner, and the lines into its message.
    own = own or [int(n) for n in re.findall(rf"In file {re.escape(file)}:(\d+)", message)]
    first = next((text for text in message.splitlines() if text.strip("- ")), "").strip()
    if isinstance(error, Forbidden):
        kind = "forbidden"
    return {"kind": kind, "message": first[:500], "line": line or (own[-1] if own else 0)}


def line_in(file: str) -> int:
    """The line of the student's file that is at work."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    return frame.f_lineno if frame is not None else 0


def time_up(number: int, frame: FrameType | None) -> None:
    raise TimeUp


if __name__ == "__main__":
    serve(work)
