"""Open a checkpoint of any supported format; `open_checkpoint` finds out what a path holds.

Files are distinguished by their content. A file whose tensors may be slices says so in its metadata
(`DCP_SHARDING_INFO`, see `sharded`). Several files without it that share a tensor name are refused,
because nothing says which part each of them holds.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dualml.common.errors import UserError, escape_unprintable
from dualml.common.files import open_to_read
from dualml.experiment.store import checkpoint as trial
from dualml.experiment.store.jsonfile import read_json_value
from dualml.experiment.store.tensors import WEIGHTS
from dualml.experiment.store.trial import RESULT
from dualml.runner.checkpoint import npz, tensorfile
from dualml.runner.checkpoint.manifest import MANIFEST
from dualml.runner.checkpoint.sharded import (
    common_step,
    incomplete_tensors,
    iter_shards,
    tensors_of,
)
from dualml.runner.checkpoint.stored_checkpoint import (
    Checkpoint,
    StoredShard,
    make_stored_tensor,
    missing_files_error,
)
from dualml.runner.checkpoint.writing import WrittenFile

INDEX = "model.safetensors.index.json"
#: ``shard-`` is from torch's writer for several ranks, ``model-`` from Hugging Face's and dualml's.
NUMBERED = re.compile(
    r"(?P<shard>shard-\d+-)?(?P<stem>.*-)(?P<number>\d+)-of-(?P<count>\d+)\.safetensors"
)
PICKLES = (".pt", ".pth", ".bin", ".pkl", ".distcp")
PICKLED = (
    "{path} is a pickle, which can run code when it is read, and is not read here; save its "
    "tensors with safetensors.torch.save_file in torch"
)
MINDSPORE = (
    "{path} is MindSpore's own checkpoint format, protobuf, which is not read here; save it with "
    "mindspore.save_checkpoint(..., format='safetensors')"
)
PICKLED_FOLDER = (
    "{path} is torch's own checkpoint format: its .metadata is a pickle, which can run code when "
    "it is read, and is not read here. Save it again with torch.distributed.checkpoint.save(..., "
    "storage_writer=HuggingFaceStorageWriter(path=DIR, save_distributed=True)), which writes "
    "safetensors, and name DIR"
)

MAX_NAMED_FOLDERS = 3  # folders that an error names


def open_checkpoint(path: Path | str) -> Checkpoint:
    """Open the checkpoint in a file or folder; its tensors are not read yet.

    Raises:
        UserError: there is none, it is damaged, files of it are missing, or it cannot be read
            without running code.
    """
    path = Path(path)
    if path.is_dir():
        for name, opener in FOLDERS.items():
            if (path / name).exists():
                return opener(path)
        return open_folder(path)
    if not path.exists():
        raise UserError(f"there is no checkpoint {path}")
    with open_to_read(path) as file:
        magic = file.read(4)
    packed = magic == b"PK\3\4"
    pickled = magic[:1] == b"\x80" and path.suffix == ".ckpt"
    if path.suffix in PICKLES or pickled or (packed and npz.is_pickled(path)):
        raise UserError(PICKLED.format(path=path))
    if path.suffix == ".ckpt" and not packed:
        raise UserError(MINDSPORE.format(path=path))
    if packed or path.suffix == ".npz":
        return Checkpoint(path, "npz", npz.read_tensors(path))
    if path.name == MANIFEST.name:
        return open_sharded(path.parent)
    one = tensorfile.open_tensor_file(path)
    if is_trial_file(one):
        return open_trial(path)
    if is_part(path.name):
        raise UserError(
            f"{path} is one of the files of a checkpoint: name the folder {path.parent}"
        )
    return Checkpoint(path, "safetensors", tensors_of(path, [one]), common_step([one]))


def is_part(name: str) -> bool:
    """Return whether, by its name alone, a file is one of several of a checkpoint."""
    match = NUMBERED.fullmatch(name)
    return match is not None and bool(match["shard"] or int(match["count"]) > 1)


def open_sharded(path: Path) -> Checkpoint:
    """Open a folder with ``checkpoint.json``, dualml's manifest; `UserError` if files are missing
    or do not fit it."""
    manifest = MANIFEST.read(path)
    for name, tensor in manifest.tensors.items():
        try:
            tensorfile.tensor_nbytes(escape_unprintable(name), tensor.type, tensor.shape)
        except ValueError as error:
            raise UserError(f"{path / MANIFEST.name}: {error}") from None
    there = {path / name: record for name, record in manifest.files.items()}
    lost = [file for file in there if not file.is_file()]
    files = []
    for file, record in there.items():
        if file in lost:
            continue
        files.append(tensorfile.open_tensor_file(file))  # names the tensors where it is too short
        if (size := file.stat().st_size) != record.bytes:
            raise UserError(f"{file} has {size:,} bytes; the manifest says {record.bytes:,}")
    shards: dict[str, list[StoredShard]] = {name: [] for name in manifest.tensors}
    for file_ in files:
        for name, kind, shard in iter_shards(file_):
            if name not in shards or manifest.tensors[name].type != kind:
                raise UserError(
                    f"{file_.path} has {escape_unprintable(name)} of type {kind}, which the "
                    "manifest does not name so: the file is of another checkpoint"
                )
            shards[name].append(shard)
    shapes = {name: tuple(record.shape) for name, record in manifest.tensors.items()}
    if lost:
        if MANIFEST.read(path) != manifest:
            raise tensorfile.replaced_error(path)
        raise missing_files_error(path, lost, incomplete_tensors(shapes, shards))
    tensors = {
        name: make_stored_tensor(path, name, manifest.tensors[name].type, shapes[name], parts)
        for name, parts in shards.items()
    }
    hashes = {file: WrittenFile(record.bytes, record.sha256) for file, record in there.items()}
    return Checkpoint(
        path, "dualml", tensors, manifest.step, manifest.layout, manifest.about, hashes
    )


def open_indexed(path: Path) -> Checkpoint:
    """Open a folder in Hugging Face's layout, in which an index maps tensors to files; `UserError`
    if files are missing or do not fit the index."""
    index = read_json_value(path / INDEX)
    places = index.get("weight_map") if isinstance(index, dict) else None
    beside = re.compile(r"[^/]+\.safetensors")
    named = isinstance(places, dict) and [str(file) for file in places.values()]
    if not isinstance(places, dict) or not named or not all(map(beside.fullmatch, named)):
        raise UserError(
            f"{path / INDEX}: it has no weight_map of tensors to files beside it, .safetensors"
        )
    names = sorted(set(places.values()))
    lost = [path / name for name in names if not (path / name).is_file()]
    if lost:
        gone = {file.name for file in lost}
        raise missing_files_error(
            path, lost, [name for name, file in places.items() if file in gone]
        )
    files = {name: tensorfile.open_tensor_file(path / name) for name in names}
    for name, file in places.items():
        if name not in files[file].entries:
            raise UserError(
                f"{path / file} has no {escape_unprintable(name)}, which {INDEX} puts there"
            )
    tensors = tensors_of(path, list(files.values()))
    if more := [name for name in tensors if name not in places]:
        raise UserError(f"{path}: {INDEX} does not name {tensorfile.format_names(more)}")
    return Checkpoint(path, "safetensors", tensors, common_step(list(files.values())))


def open_folder(path: Path) -> Checkpoint:
    """Open a folder of safetensors files, and only those directly in it, without an index or a
    manifest; `UserError` if there are none, one is missing, or they are of a trial."""
    paths = sorted(path.glob("*.safetensors"))
    if not paths:
        if pickles := sorted(file for file in path.iterdir() if file.suffix in PICKLES):
            raise UserError(PICKLED.format(path=pickles[0]))
        raise UserError(
            f"{path} has no checkpoint: neither {MANIFEST.name} nor {INDEX} nor files that end in "
            f".safetensors{describe_nested_weights(path)}"
        )
    check_numbers(path, paths)
    files = [tensorfile.open_tensor_file(file) for file in paths]
    if any(map(is_trial_file, files)):
        raise UserError(f"{path / trial.NAME} is missing, or not a readable checkpoint")
    tensors = tensors_of(path, files)
    kind = "dcp" if any(len(t.shards) > 1 for t in tensors.values()) else "safetensors"
    kind = "dcp" if paths[0].name.startswith("shard-") else kind
    return Checkpoint(path, kind, tensors, common_step(files))


def describe_nested_weights(path: Path) -> str:
    """Return the part of an error message that names the first subfolders with weights, such as the
    trials of a run; empty if there are none."""
    found = sorted(
        {file.parent.relative_to(path) for file in path.glob("*/**/weights.safetensors")}
    )
    more = f" and {len(found) - MAX_NAMED_FOLDERS} more" if len(found) > MAX_NAMED_FOLDERS else ""
    named = ", ".join(map(str, found[:MAX_NAMED_FOLDERS]))
    return f"; in it are {named}{more}: name one of them" if found else ""


def check_numbers(path: Path, paths: Sequence[Path]) -> None:
    """Raise `UserError` where numbered files are incomplete. Files of ranks (``shard-``) are not
    checked: their names do not tell the number of ranks, and a rank without tensors writes none."""
    there: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for file in paths:
        if (match := NUMBERED.fullmatch(file.name)) and not match["shard"]:
            there[match["stem"], match["count"]].add(match["number"])
    for (stem, count), numbers in there.items():
        width = len(min(numbers))
        every = (f"{n:0{width}}" for n in range(1, min(int(count), 10**5) + 1))
        lost = [f"{stem}{n}-of-{count}.safetensors" for n in every if n not in numbers]
        if lost:
            raise UserError(
                f"{path}: {tensorfile.format_names(lost)} "
                f"{'is' if len(lost) == 1 else 'are'} missing; take the file from a copy"
            )


def is_trial_file(file: tensorfile.SafetensorsFile) -> bool:
    """Return whether a file is the checkpoint of a trial: by its metadata, because other programs
    may use the same name."""
    return file.path.name.endswith(trial.NAME) and "progress" in file.metadata


def open_trial(path: Path) -> Checkpoint:
    """Open the checkpoint of a trial of `dualml run`: its weights and optimizer state, without what
    it recorded for the comparison (``trace/``)."""
    file = tensorfile.open_tensor_file(path)
    progress = trial.parse_progress(file.metadata, path)
    tensors = tensors_of(path, [file])
    kept = {name: t for name, t in tensors.items() if not name.startswith("trace/")}
    return Checkpoint(path, "trial", kept, progress.step)


def open_running_trial(path: Path) -> Checkpoint:
    """Open the checkpoint in the folder of a trial that has not ended; where its file belongs to
    another program, the folder as one of safetensors files."""
    file = path / trial.NAME
    return (
        open_trial(file) if is_trial_file(tensorfile.open_tensor_file(file)) else open_folder(path)
    )


def open_ended_trial(path: Path) -> Checkpoint:
    """Open the weights of a trial that has ended, which keeps nothing else; `UserError` if it left
    none."""
    if not (path / WEIGHTS.name).exists():
        raise UserError(f"{path}: the trial has ended and left no weights ({WEIGHTS.name})")
    file = tensorfile.open_tensor_file(path / WEIGHTS.name)
    return Checkpoint(file.path, "trial", tensors_of(path, [file]), RESULT.read(path).updates)


def refuse_pickled(path: Path) -> Checkpoint:
    """Raise `UserError` in any case: torch's own checkpoint format, whose metadata is a pickle, is
    not read."""
    raise UserError(PICKLED_FOLDER.format(path=path))


#: File in a folder → function that opens the folder, tried in this order.
FOLDERS: dict[str, Callable[[Path], Checkpoint]] = {
    MANIFEST.name: open_sharded,
    INDEX: open_indexed,
    ".metadata": refuse_pickled,
    RESULT.name: open_ended_trial,
    trial.NAME: open_running_trial,
}


def load(path: Path | str, name: str, where: Sequence[slice] | None = None) -> Any:
    """Read one tensor, or a slice of it, from a checkpoint.

    Args:
        path: of the file or folder.
        name, where: as `Checkpoint.read` takes them.

    Example:
        ``load(Path("ckpt"), "weights/fc.weight", [slice(0, 10)])`` returns its first ten rows.
    """
    return open_checkpoint(path).read(name, where)
