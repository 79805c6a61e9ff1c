"""Fuzz the readers of input, case by case: ``python tests/core/fuzz.py ENTRY CASES [SEED]``.

Every case must end in a result or in a one-line `UserError`. One line of JSON reports the number of
cases, the failures, the longest case and the total memory.
"""

from __future__ import annotations

import atexit
import contextlib
import gzip
import io
import json
import os
import resource
import shutil
import struct
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from mutations import ODD, TEXTS, document, mutated, mutated_bytes, nested, places, toml

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "golden"))

from dualml.common.errors import TrialError, Unsupported, UserError  # noqa: E402

#: The package whose lines are named for a fault.
CORE = ROOT / "dualml"
#: The folder that cases write to.
BASE = Path(tempfile.mkdtemp(prefix="dualml-fuzz-"))
atexit.register(shutil.rmtree, BASE, ignore_errors=True)
os.environ["DUALML_OFFLINE"] = "1"
Case = Callable[[Any], object]
EXPECTED = (UserError, Unsupported, TrialError)


# --- experiments and overrides -------------------------------------------------------------------

LABS = ("lab1", "lab2", "lab3", "lab4", "rnn_ps")


@cache
def table_of(lab: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads((ROOT / "experiments" / f"{lab}.toml").read_text("utf-8"))


@cache
def places_of(lab: str) -> list[tuple[Any, ...]]:
    return list(places(table_of(lab)))


@cache
def digits() -> Any:
    from dualml.experiment.data import load

    return load("digits", explicit=True)


def resolved(path: str, draw: Any, overrides: tuple[str, ...] = ()) -> None:
    """Resolve an experiment as `dualml show` and `dualml run` do, up to the plan."""
    from dualml.experiment.freeze import freeze
    from dualml.experiment.load import load

    quick, small = draw(st.booleans()), draw(st.booleans())
    ranks = draw(st.sampled_from([None, None, None, 1, 2, 4]))
    loaded = load(path, overrides=overrides, quick=quick, small=small, world_size=ranks)
    json.dumps(loaded.describe(), allow_nan=False)
    if draw(st.booleans()):
        first = list(loaded.arms)[:1]
        few = {"arms": {name: loaded.arms[name] for name in first}, "seeds": loaded.seeds[:1]}
        freeze(loaded.model_copy(update=few), digits())


def experiments(draw: Any) -> None:
    path, lab = BASE / "x.toml", draw(st.sampled_from(LABS))
    if draw(st.integers(0, 3)):
        text = document(mutated(draw, table_of(lab), places_of(lab)))
        path.write_text(text, "utf-8", errors="replace")
    else:
        whole = (ROOT / "experiments" / f"{lab}.toml").read_bytes()
        path.write_bytes(mutated_bytes(draw, whole))
    resolved(str(path), draw)


def overrides(draw: Any) -> None:
    lab, texts = draw(st.sampled_from(LABS)), []
    for _ in range(draw(st.sampled_from([1, 1, 2]))):
        place = draw(st.sampled_from(places_of(lab)))
        key = ".".join(map(str, place))
        if draw(st.integers(0, 4)) == 0:
            key += draw(st.sampled_from([".", ".x", "..", ".0", ". ", "=", "." + "a." * 40]))
        value = draw(st.one_of(ODD, st.sampled_from(TEXTS)))
        texts.append(f"{key}={value if draw(st.booleans()) else toml(value)}")
    resolved(lab, draw, tuple(texts))


# --- run folders ---------------------------------------------------------------------------------


@cache
def run_folder(lab: str) -> tuple[Path, dict[str, bytes]]:
    import golden_recorded

    folder = golden_recorded.unpacked(lab, BASE)
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return folder, {p.relative_to(folder).as_posix(): p.read_bytes() for p in files}


@cache
def parsed(lab: str, name: str) -> tuple[Any, list[tuple[Any, ...]]]:
    value = json.loads(run_folder(lab)[1][name])
    return value, list(places(value))


def use_run_folder(folder: Path, draw: Any) -> None:
    """Use a run folder: render a page, compute verdicts, resume the run."""
    from dualml.common.words import Messages
    from dualml.experiment.store.folder import RunFolder
    from dualml.experiment.store.load import load
    from dualml.parity.judge import judge_run
    from dualml.report.compose import compose
    from dualml.report.page.markdown import render_markdown

    sure, lang = draw(st.booleans()), draw(st.sampled_from(["en", "zh"]))
    uses: dict[str, Callable[[], object]] = {
        "page": lambda: render_markdown(
            compose(load([folder], force=not sure), Messages(lang))
        ).encode(errors="backslashreplace"),
        "judge": lambda: json.dumps(judge_run(folder, verify=sure).describe(), default=float),
        "open": lambda: RunFolder.open(folder),
    }
    uses[draw(st.sampled_from(["page", "page", "judge", "open"]))]()


def run_folders(draw: Any) -> None:
    """Fuzz one file of a folder of real trials."""
    folder, files = run_folder(draw(st.sampled_from(LABS[:4])))
    kind = draw(st.sampled_from([".json", ".json", ".json", ".jsonl", ".npz", ".safetensors"]))
    names = [name for name in files if name.endswith(kind)]
    whole = ["run.json", "parity.json", "plan/plan.json", "cost.json", "findings.json"]
    if kind == ".json" and draw(st.integers(0, 2)):
        names = [name for name in whole if name in files]
    name = draw(st.sampled_from(names))
    content = files[name]
    if kind == ".json" and draw(st.integers(0, 9)):
        content = json.dumps(mutated(draw, *parsed(folder.name, name))).encode()
    elif kind == ".jsonl" and draw(st.integers(0, 3)):
        lines = content.splitlines()
        number = draw(st.integers(0, len(lines) - 1))
        lines[number] = json.dumps(mutated(draw, json.loads(lines[number]))).encode()
        content = b"\n".join(lines)
    elif kind == ".safetensors" and draw(st.integers(0, 2)):
        content = tensors(draw, content)
    elif kind == ".npz" and draw(st.integers(0, 2)):
        content = archive(draw, content)
    else:
        content = mutated_bytes(draw, content)
    try:
        (folder / name).write_bytes(content)
        use_run_folder(folder, draw)
    finally:
        (folder / name).write_bytes(files[name])


# --- arrays --------------------------------------------------------------------------------------

KINDS = ("<f4", "<f8", "<i8", "|u1", "|b1", "<c8", "<U3", "|V0", "|O", "<f2", ">f8", "<M8[s]", "x")


def header(draw: Any) -> bytes:
    shape = draw(
        st.one_of(
            st.lists(st.sampled_from([0, 1, 2, 3, 10**6, 2**62, -1, 10**30]), max_size=4).map(
                tuple
            ),
            st.sampled_from([(10**12,), (1,) * 33, "x", 3, (1.5,), ((1,),), (True,)]),
        )
    )
    head = {"descr": draw(st.sampled_from(KINDS)), "fortran_order": draw(st.booleans())}
    text = f"{ {**head, 'shape': shape}!r}\n".encode()
    version = draw(st.sampled_from([b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"]))
    width = "<H" if version[0] == 1 else "<I"
    return b"\x93NUMPY" + version + struct.pack(width, len(text)) + text


def archive(draw: Any, content: bytes) -> bytes:
    """Return a NumPy archive with a changed header, bytes or name, or a decompression bomb."""
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        members = {info.filename: packed.read(info) for info in packed.infolist()}
    name = draw(st.sampled_from(list(members)))
    how = draw(st.sampled_from(["header", "header", "values", "rename", "drop", "bomb", "bytes"]))
    if how == "header":
        start = members[name].index(b"\n") + 1
        members[name] = header(draw) + members[name][start:]
    elif how == "values":
        odd = np.asarray(draw(st.lists(st.floats(), max_size=4)))
        file = io.BytesIO()
        odd = draw(st.sampled_from([odd, odd[:, None], odd[None], np.float64(3)]))
        np.save(file, odd.astype(draw(st.sampled_from(["f8", "f4", "i8", "u1", "?", "U9", "c8"]))))
        members[name] = file.getvalue()
    elif how == "rename":
        members["".join(filter(str.isprintable, draw(st.sampled_from(TEXTS))))[:99] or "x"] = (
            members.pop(name)
        )
    elif how == "drop":
        del members[name]
    elif how == "bomb":
        members[name] += bytes(draw(st.sampled_from([10**5, 10**7])))
    else:
        members[name] = mutated_bytes(draw, members[name])
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for member, inside in members.items():
            packed.writestr(member, inside)
    return file.getvalue()


@cache
def inputs() -> bytes:
    file = io.BytesIO()
    np.savez(file, x=np.ones((4, 3), np.float32), y=np.arange(4))
    return file.getvalue()


@cache
def deal() -> bytes:
    from dualml.parallel.partition import RandomPartition
    from dualml.parallel.partition.from_file import save_partition

    labels = np.arange(60) % 6
    save_partition(
        BASE / "deal.npz", RandomPartition().partition(labels, 3), labels, "some", RandomPartition()
    )
    return (BASE / "deal.npz").read_bytes()


def archives(draw: Any) -> None:
    """Fuzz the inputs of `dualml compare`, and partitions from files."""
    from dualml.interface.cli.compare_models import load_batch
    from dualml.parallel.partition import verify_partition
    from dualml.parallel.partition.from_file import FromFile
    from dualml.parity.models.inputs import resolve_losses, to_array
    from dualml.parity.models.inputs import to_arrays as arrays_of

    path, of_models = BASE / "case.npz", draw(st.booleans())
    content = inputs() if of_models else deal()
    change = archive if draw(st.integers(0, 2)) else mutated_bytes
    path.write_bytes(change(draw, content))
    if of_models:
        arrays, targets = load_batch(path, [], 0)
        arrays_of(arrays, "inputs")
        target = None if targets is None else to_array(targets, "targets")
        resolve_losses(draw(st.sampled_from(["mse", "cross_entropy", "probe"])), target)
        return
    rule, labels = FromFile(path=str(path)), np.arange(60) % 6
    verify_partition(rule, rule.partition(labels, 3), labels)


def tensors(draw: Any, content: bytes) -> bytes:
    """Return a safetensors file with a changed header or changed bytes."""
    (size,) = struct.unpack("<Q", content[:8])
    head, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    how = draw(st.sampled_from(["header", "header", "type", "name", "length", "bytes"]))
    name = draw(st.sampled_from([name for name in head if name != "__metadata__"]))
    if how == "bytes":
        return mutated_bytes(draw, content)
    if how == "header":
        head = mutated(draw, head)
    elif how == "type":  # of the same width
        same = ["F32", "I32", "U32"] if head[name]["dtype"] == "F32" else ["F64", "I64", "U64"]
        head[name]["dtype"] = draw(st.sampled_from([*same, "BF16", "F8_E4M3", "BOOL"]))
    elif how == "name":
        head[draw(st.sampled_from(TEXTS))] = head.pop(name)
    text = json.dumps(head).encode()
    size = draw(st.sampled_from([2**63, 2**40, 0, 7])) if how == "length" else len(text)
    return struct.pack("<Q", size) + text + data


@cache
def traces() -> tuple[Path, Path, dict[str, bytes]]:
    from model_traces import trace

    a, b = BASE / "a", BASE / "b"
    trace().write(a)
    trace(1e-7, other=True).write(b)
    return a, b, {path.name: path.read_bytes() for path in b.iterdir()}


def model_traces(draw: Any) -> None:
    """Fuzz the traces that `dualml compare` reads: tensors and their metadata."""
    from dualml.parity.models.run import compare_traces

    a, b, files = traces()
    name = draw(st.sampled_from(sorted(files)))
    content = files[name]
    if draw(st.integers(0, 4)) == 0:
        content = mutated_bytes(draw, content)
    elif name.endswith(".json"):
        content = json.dumps(mutated(draw, json.loads(content))).encode()
    else:
        content = tensors(draw, content)
    asked = draw(st.sampled_from([None, None, {"fc.weight": "fc.weight"}, {"x": "y"}, {"": ""}]))
    try:
        (b / name).write_bytes(content)
        comparison = compare_traces(a, b, map=asked)
        json.dumps(comparison.describe())
        comparison.paragraph(draw(st.sampled_from(["en", "zh"])))
    finally:
        (b / name).write_bytes(files[name])


@cache
def checkpoint_files() -> tuple[Path, dict[str, bytes]]:
    """Write a checkpoint of two ranks in slices, and the same as two Hugging Face files."""
    from dualml.backend.reference.communicator import run_threads
    from dualml.runner.checkpoint import Slice, open_checkpoint, save
    from dualml.runner.checkpoint.convert import convert

    array, folder = np.arange(24, dtype=np.float32).reshape(6, 4), BASE / "ckpts"

    def save_rank(comm: Any) -> None:
        rows = slice(3 * comm.rank, 3 * comm.rank + 3)
        half = np.arange(4, dtype=np.uint16)
        slices = [Slice("x", (6, 4), (rows.start, 0), array[rows]), Slice.full("h", half, "BF16")]
        save(comm, slices, folder / "own", step=3)

    run_threads(2, save_rank)
    convert(open_checkpoint(folder / "own"), folder / "hf", "safetensors", 2)
    convert(open_checkpoint(folder / "own"), folder / "dcp", "dcp", 2)
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != ".checkpoint.lock")
    return folder, {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def checkpoints(draw: Any) -> None:
    """Fuzz checkpoints: manifests, indices, headers, and the slices that headers describe."""
    from dualml.runner.checkpoint import open_checkpoint
    from dualml.runner.checkpoint.convert import convert
    from dualml.runner.checkpoint.display import describe_checkpoint

    folder, files = checkpoint_files()
    name = draw(st.sampled_from(sorted(files)))
    content = files[name]
    if draw(st.integers(0, 4)) == 0:
        content = mutated_bytes(draw, content)
    elif name.endswith(".json"):
        content = json.dumps(mutated(draw, json.loads(content))).encode()
    elif draw(st.booleans()):
        (size,) = struct.unpack("<Q", content[:8])
        head, data = json.loads(content[8 : 8 + size]), content[8 + size :]
        keys = [key for key in head["__metadata__"] if key in ("dualml", "DCP_SHARDING_INFO")]
        key = draw(st.sampled_from(sorted(keys)))
        inner = mutated(draw, json.loads(head["__metadata__"][key]))
        head["__metadata__"][key] = json.dumps(inner)
        text = json.dumps(head).encode()
        content = struct.pack("<Q", len(text)) + text + data
    else:
        content = tensors(draw, content)
    target = BASE / "converted"
    try:
        (folder / name).write_bytes(content)
        found = open_checkpoint(folder / name.partition("/")[0])
        json.dumps(describe_checkpoint(found), allow_nan=False)
        for tensor in found.tensors:
            found.read(tensor)
        convert(found, target, draw(st.sampled_from(["dualml", "safetensors", "dcp", "npz"])))
        open_checkpoint(target) if target.is_dir() else None
    finally:
        (folder / name).write_bytes(files[name])
        shutil.rmtree(target, ignore_errors=True)
        target.unlink(missing_ok=True)


def idx_files(draw: Any) -> None:
    """Fuzz IDX files, plain and compressed: sizes, bytes, decompression bombs."""
    from dualml.experiment.data import idx
    from dualml.experiment.data.locations import read_verified
    from dualml.experiment.data.registry import IdxFile

    content = idx.encode(np.arange(24, dtype=np.uint8).reshape(2, 3, 4))
    if draw(st.booleans()):
        sizes = draw(st.lists(st.sampled_from([0, 1, 2, 3, 255, 2**16, 2**32 - 1]), max_size=40))
        kind = draw(st.sampled_from([8, 9, 11, 12, 13, 14, 0, 255]))
        content = struct.pack(f">HBB{len(sizes)}I", 0, kind, len(sizes), *sizes) + content[16:]
    content += bytes(draw(st.sampled_from([0, 0, 0, 1, 10**5, 3 * 10**7])))
    if draw(st.booleans()):
        content = gzip.compress(content, 1)
    if draw(st.booleans()):
        content = mutated_bytes(draw, content[:100_000])
    path = BASE / draw(st.sampled_from(["images", "images.gz"]))
    path.write_bytes(content)
    if draw(st.booleans()):
        idx.read(path)
    else:
        read_verified(path, IdxFile("images", (2, 3, 4), "sha256:0"), "")


CELLS = (
    "0F0",
    "1B0",
    "",
    "·",
    "-1F0",
    "0F-1",
    "0F99",
    "9999999999F0",
    "0F9999999999",
    "0W0",
    "²F0",
    "0F" + "9" * 5000,
    "F",
    None,
    3,
    [],
)


def grids(draw: Any) -> None:
    """Fuzz schedules read from files."""
    from dualml.parallel.split.schedules import build
    from dualml.planning.cost.link import Link
    from dualml.planning.cost.pipeline_request import read_grid, request_from_options

    known = build("1f1b", (0, 1), 3).describe()
    value = {**known, "rows": [[cell or "." for cell in row] for row in known["rows"]]}
    if draw(st.booleans()):
        row = draw(st.integers(0, len(value["rows"]) - 1))
        place = draw(st.integers(0, len(value["rows"][row]) - 1))
        value["rows"][row][place] = draw(st.sampled_from(CELLS))
    if draw(st.booleans()):
        value = mutated(draw, value)
    kind = draw(st.sampled_from(["json", "toml", "txt"]))
    path = BASE / f"grid.{kind}"
    if kind == "json":
        path.write_text(json.dumps(value))
    elif kind == "toml":
        path.write_text(document(value), "utf-8", errors="replace")
    else:
        rows = value.get("rows") if isinstance(value.get("rows"), list) else []
        lines = (" ".join(map(str, row)) if isinstance(row, list) else str(row) for row in rows)
        path.write_text("\n".join(lines), "utf-8", errors="replace")
    if draw(st.integers(0, 9)) == 0:
        path.write_bytes(mutated_bytes(draw, path.read_bytes()))
    grid = read_grid(path)
    times = {"forward": "1ms", "backward": None, "update": None, "size": "1KB"}
    json.dumps(request_from_options(None, grid, Link(1e-5, 1e-9, 0.0), **times).describe())


# --- options -------------------------------------------------------------------------------------

WORDS = ("0", "-1", "1", "3", "nan", "inf", "1e999", "9" * 30, "9" * 5000, str(2**63 - 1), "x", "",
         "²", "1,2", "1..9", "2..1000000", "0.5", "1e18", "1ms", "1GB", "1GB/s", "1ns/B", "1e18GB",
         "\udcff", "ring", "1f1b", "lenet", "nodes:2", "\x00".join("ab"), "🎉")  # fmt: skip
OPTIONS = {
    "simulate": "ranks strategy size model alpha bandwidth beta gamma compute every slow-rank "
    "slow-compute slow-latency slow-bandwidth jitter seed topology inter-alpha inter-bandwidth "
    "pipeline micro-batches chunks owners forward backward update grid fit",
    "plan gpt2": "devices device memory link batch sequence precision attention node inside alpha "
    "peak hbm efficiency overlap reserve tensor context interleave zero recompute top layout pin "
    "tokens price export calibrate engine",
    "split lenet": "ranks stages cut balance backend tensor data schedule micro-batches batch",
    "partition random": "set world-size seed epoch data",
    "partition dirichlet_labels --data digits": "set world-size seed epoch",
    "show lab1": "set",
    "compare x.py:A x.py:B": "shape inputs loss optimizer lr steps map margin seed timeout",
    "capabilities --backend none": "ranks device",
    "checkpoint convert nowhere out": "to shards",
    "checkpoint show nowhere": "like",
    "run lab1 --backend numpy": "seed arm data world-size rendezvous device threads resume",
    "find nowhere": "arm seed",
    "bench --no-run": "device backend only limit",
}
#: Axes of ``--layout`` and ``--pin`` of `plan`.
AXES = ("dp", "pp", "tp", "cp", "ep", "sp", "zero", "micro", "v", "recompute", "replicate", "x", "")
#: The last option of `run`, which makes it run nothing.
LAST = {"run": ("--arm", "no such arm"), "capabilities": ("--backend", "no such backend")}


def options(draw: Any) -> None:
    """Fuzz the command line, in this process."""
    from typer.main import get_command

    from dualml.interface.cli import report_error
    from dualml.interface.cli.app import app

    command = draw(st.sampled_from(sorted(OPTIONS)))
    words = command.split()
    for _ in range(draw(st.sampled_from([1, 1, 2, 3]))):
        words.append(f"--{draw(st.sampled_from(OPTIONS[command].split()))}")
        words.append(draw(st.sampled_from(WORDS)))
        if words[-2] == "--set":
            words[-1] = f"alpha={words[-1]}"
        if words[-2] in ("--layout", "--pin"):
            axes = draw(st.lists(st.sampled_from(AXES), min_size=1, max_size=4))
            words[-1] = ",".join(f"{axis}={draw(st.sampled_from(WORDS))}" for axis in axes)
    words += LAST.get(words[0], ())
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="replace")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            get_command(app).main(args=words, standalone_mode=False)
        except Exception as error:
            report_error(error)


ENTRIES: dict[str, Case] = {
    "experiments": experiments,
    "overrides": overrides,
    "run_folders": run_folders,
    "archives": archives,
    "model_traces": model_traces,
    "checkpoints": checkpoints,
    "idx_files": idx_files,
    "grids": grids,
    "options": options,
}
assert nested(2, 1) == [[1]]


def run(entry: str, cases: int, number: int = 0) -> dict[str, Any]:
    """Run an entry's cases and return the figures."""
    count, refused, longest, faults = 0, 0, 0.0, dict[str, str]()

    @seed(number)
    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def case(data: Any) -> None:
        nonlocal count, longest, refused
        begin = time.process_time()  # other work on this machine does not count
        try:
            ENTRIES[entry](data.draw)
        except EXPECTED as error:
            refused += 1
            if "\n" in str(error):
                faults.setdefault("several lines", str(error)[:500])
        except Exception as error:
            if type(error).__module__.startswith("hypothesis"):
                raise
            frames = traceback.extract_tb(error.__traceback__)
            last = [f for f in frames if Path(f.filename).is_relative_to(CORE)]
            where = f"{Path(last[-1].filename).name}:{last[-1].lineno}" if last else "?"
            text = "".join(traceback.format_exception(error)[-8:])
            faults.setdefault(f"{where} {type(error).__name__}", text)
        count += 1
        seconds = time.process_time() - begin
        if seconds > longest:
            longest = seconds

    case()
    return {
        "entry": entry,
        "cases": count,
        "refused": refused,
        "faults": faults,
        "longest_s": round(longest, 2),
        "peak_mb": round(peak_mb()),
    }


def peak_mb() -> float:
    """Return the peak memory in MiB of this process only; `getrusage` would include the parent's at
    the fork."""
    with contextlib.suppress(OSError):
        status = Path("/proc/self/status").read_text("utf-8")
        return int(status.partition("VmHWM:")[2].split()[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


if __name__ == "__main__":
    name, asked, *more = sys.argv[1:]
    print("\n" + json.dumps(run(name, int(asked), *map(int, more))))
