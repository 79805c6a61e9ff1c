"""Open the weights in a file or folder: safetensors, in one file or in several, MindSpore's
``.ckpt``, or ``.npz``. Nothing is unpickled."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dualml.common.arrays import read_npz
from dualml.common.errors import UserError, escape_unprintable
from dualml.common.files import open_to_read, read_json
from dualml.common.tensor_files import DTYPES, read_layout
from dualml.parity.models.weights.mindspore_file import index_checkpoint
from dualml.parity.models.weights.stored import (
    BFLOAT16,
    FileBytes,
    FileTensor,
    WeightFiles,
)

PICKLES = (".pt", ".pth", ".bin", ".pkl", ".pickle", ".distcp")
INDEX_END = ".safetensors.index.json"
#: Names of the files of a checkpoint in several: ``model-00001-of-00002.safetensors``.
NUMBERED = re.compile(r"(?P<stem>.*-)(?P<number>\d+)-of-(?P<count>\d+)\.safetensors")
FORMATS = ".safetensors, .ckpt (MindSpore), .npz, or a folder with them"
NUMPY_KINDS = {dtype: kind for kind, dtype in DTYPES.items()}
#: Converts pickles in the user's own environment; the names of the files stand behind it.
CONVERSION = (
    'python -c "import sys, torch; from safetensors.torch import save_file; '
    "[save_file({k: v.clone().contiguous() for k, v in (w.get('state_dict') or w).items() "
    "if torch.is_tensor(v)}, p.rpartition('.')[0] + '.safetensors') for p in sys.argv[1:] "
    "for w in [torch.load(p, map_location='cpu', weights_only=True)]]\""
)
MAX_LISTED = 5


def open_weights(path: Path) -> WeightFiles:
    """Open the weights in a file or folder; only their headers are read.

    Raises:
        UserError: there are none, files are missing or damaged, or they are pickles.
    """
    if path.is_dir():
        return open_folder(path)
    if not path.exists():
        raise UserError(f"--weights: there is no file or folder {path}")
    if path.name.endswith(INDEX_END):
        return open_index(path)
    with open_to_read(path) as file:
        magic = file.read(4)
    if is_pickle(path, magic):
        raise pickle_error(path, [path])
    if magic == b"PK\3\4" or path.suffix == ".npz":
        arrays = read_npz(path, "not a readable .npz")
        tensors = {name: tensor_from_array(path, name, array) for name, array in arrays.items()}
        return WeightFiles(path, "npz", tensors, (path,))
    if path.suffix == ".ckpt":
        return WeightFiles(path, "ckpt", index_checkpoint(path), (path,))
    if path.suffix != ".safetensors":
        raise UserError(f"--weights: {path} has an unknown format; it reads {FORMATS}")
    match = NUMBERED.fullmatch(path.name)
    if match and int(match["count"]) > 1:
        raise UserError(
            f"{path} is one of {int(match['count'])} files; name the folder {path.parent}"
        )
    return WeightFiles(path, "safetensors", open_safetensors(path), (path,))


def open_safetensors(path: Path) -> dict[str, FileTensor]:
    """Open one safetensors file; raise `UserError` if it is damaged or has a type of numbers that
    cannot be read."""
    tensors = {}
    for name, (kind, shape, begin) in read_layout(path, "not a readable safetensors file").items():
        if kind not in DTYPES and kind != BFLOAT16:
            raise UserError(
                f"{path}: {escape_unprintable(name)} has the type {kind}, which cannot be computed "
                "with here; save the weights in bfloat16, float16 or float32"
            )
        count = item_count(shape) * (2 if kind == BFLOAT16 else numpy_bytes(kind))
        tensors[name] = FileBytes(path, ((begin, count),), kind, shape).as_tensor()
    return tensors


def item_count(shape: Sequence[int]) -> int:
    """Return the number of elements of an array of a shape."""
    count = 1
    for length in shape:
        count *= length
    return count


def numpy_bytes(kind: str) -> int:
    """Return the bytes of a number of a type that NumPy has."""
    import numpy as np

    return np.dtype(DTYPES[kind]).itemsize


def tensor_from_array(path: Path, name: str, array: Any) -> FileTensor:
    """Return an array of an ``.npz`` file as a tensor; raise `UserError` if its dtype is not one
    that can be computed with."""
    kind = NUMPY_KINDS.get(array.dtype.name)
    if kind is None:
        raise UserError(f"{path}: {escape_unprintable(name)} has the type {array.dtype}")
    return FileTensor(kind, array.shape, partial(array.copy))


def open_index(path: Path) -> WeightFiles:
    """Open a checkpoint in several safetensors files, whose index says which has which tensor.

    Raises:
        UserError: the index is damaged, or files or tensors are missing.
    """
    index = read_json(path)
    places = index.get("weight_map") if isinstance(index, dict) else None
    named = places.values() if isinstance(places, dict) else ()
    if not places or not all(isinstance(f, str) and Path(f).name == f for f in named):
        raise UserError(f"{path}: it has no weight_map of tensors to files beside it")
    files = sorted({*named})
    if lost := [file for file in files if not (path.parent / file).is_file()]:
        gone = [name for name, file in places.items() if file in lost]
        raise UserError(
            f"{path.parent}: {list_names(lost)} {'is' if len(lost) == 1 else 'are'} missing, with "
            f"{len(gone)} of {len(places)} tensors: {list_names(gone)}; take the file from a copy"
        )
    tensors = read_all([path.parent / file for file in files])
    if absent := [name for name in places if name not in tensors]:
        raise UserError(f"{path}: {list_names(absent)} in no file, although it names them")
    return WeightFiles(path, "safetensors", tensors, tuple(path.parent / file for file in files))


def read_all(paths: Sequence[Path]) -> dict[str, FileTensor]:
    """Open several safetensors files; raise `UserError` if two have a tensor of one name."""
    tensors: dict[str, FileTensor] = {}
    for path in paths:
        part = open_safetensors(path)
        if twice := [name for name in part if name in tensors]:
            raise UserError(f"{path}: {list_names(twice)} in another file, too; name one file")
        tensors |= part
    return tensors


def open_folder(path: Path) -> WeightFiles:
    """Open the weights of a folder, such as one of Hugging Face: an index, or else safetensors
    files, or else one ``.ckpt`` or ``.npz``.

    Raises:
        UserError: there are none, several of a kind, or only pickles.
    """
    indices = sorted(path.glob(f"*{INDEX_END}"))
    paths = sorted(path.glob("*.safetensors"))
    if len(indices) == 1:
        return replace(open_index(indices[0]), path=path)
    if not indices and paths and is_whole(path, paths):
        return WeightFiles(path, "safetensors", read_all(paths), tuple(paths))
    others = sorted(one for one in path.iterdir() if one.suffix in (".ckpt", ".npz"))
    if not indices and not paths and len(others) == 1:
        return open_weights(others[0])
    if several := [*indices, *paths, *others]:
        names = list_names([one.name for one in several])
        raise UserError(f"{path} has several weight files ({names}); name one of them")
    if pickles := sorted(one for one in path.iterdir() if one.suffix in PICKLES):
        named = [one for one in pickles if one.name not in ("training_args.bin",)]
        raise pickle_error(path, named or pickles)
    raise UserError(f"{path} has no weights: {FORMATS}")


def is_whole(folder: Path, paths: Sequence[Path]) -> bool:
    """Return whether safetensors files without an index are one checkpoint: a single file, or all
    files ``…-NUMBER-of-COUNT.safetensors`` of one name. Raise `UserError` if some of the numbered
    files are missing."""
    matches = [NUMBERED.fullmatch(path.name) for path in paths]
    found = [match for match in matches if match]
    if len(found) < len(paths) or len({(m["stem"], m["count"]) for m in found}) != 1:
        return len(paths) == 1
    width, count = len(found[0]["number"]), int(found[0]["count"])
    have = {int(match["number"]) for match in found}
    first = min(count, max(have) + 1)
    if lost := [n for n in range(1, first + 1) if n not in have][:MAX_LISTED] or (
        [first] if len(have) < count else []
    ):
        names = [
            f"{found[0]['stem']}{n:0{width}d}-of-{found[0]['count']}.safetensors" for n in lost
        ]
        raise UserError(f"{folder}: {list_names(names)} missing of {count}; take it from a copy")
    return True


def is_pickle(path: Path, magic: bytes) -> bool:
    """Return whether a file is a pickle, by its name or its content."""
    if path.suffix in PICKLES or magic[:1] == b"\x80":
        return True
    if magic != b"PK\3\4":
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("data.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return False


def pickle_error(path: Path, files: Sequence[Path]) -> UserError:
    """Return (not raise) the error for weights that are pickles, with the command that converts
    ``files``."""
    words = " ".join(f"'{file}'" for file in files[: 4 * MAX_LISTED])
    return UserError(
        f"{path}: {files[0].name} is a pickle, which can run code when it is read, and is not read "
        f"here; in the environment of its PyTorch, {CONVERSION} {words} writes safetensors beside "
        "it, without code"
    )


def list_names(names: Sequence[str]) -> str:
    """Return the first `MAX_LISTED` names joined by commas, with the number of the others."""
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(map(escape_unprintable, names[:MAX_LISTED])) + more
