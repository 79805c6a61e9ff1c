"""Files whose tensors are slices of larger ones, and the metadata that describes the slices.

A file names each tensor as in the model and stores the offset of its slice in the way
`torch.distributed.checkpoint` does in safetensors files (``DCP_SHARDING_INFO``: name →
``saved_offsets``), so that `HuggingFaceStorageReader` can read them. That format omits the shape of
the whole tensor and the number of files; dualml stores both, and the step, in metadata of its own.

Source: torch 2.13, torch/distributed/checkpoint/{filesystem,hf_storage}.py.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dualml.common.errors import UserError, escape_unprintable
from dualml.common.parse import from_json
from dualml.runner.checkpoint.boxes import IndexBox, uncovered_boxes
from dualml.runner.checkpoint.stored_checkpoint import (
    Shape,
    StoredShard,
    StoredTensor,
    make_stored_tensor,
)
from dualml.runner.checkpoint.tensorfile import SafetensorsFile, format_names, tensor_nbytes

#: Metadata keys: the tensor offsets of PyTorch's distributed checkpoints (DCP), and dualml's table.
DCP_KEY, DUALML_KEY = "DCP_SHARDING_INFO", "dualml"
#: Pattern of the names of ranks' files, as PyTorch's writer and dualml number them.
RANK_FILE = re.compile(r"shard-(?P<number>\d{1,6})(?P<rest>-.*)")


def file_metadata(
    boxes: Mapping[str, tuple[IndexBox, Shape]] | None, step: int | None, files: int
) -> dict[str, str]:
    """Return the metadata of a file, as texts by key.

    Args:
        boxes: name → slice and shape of the whole; None if all tensors are whole.
        step: number of updates made; None if unknown.
        files: number of files of the checkpoint.
    """
    own: dict[str, Any] = {"files": files}
    if step is not None:
        own["step"] = step
    texts = {"format": "pt"}  # the framework whose names these are; transformers requires it
    if boxes is not None:
        own["shapes"] = {name: shape for name, (_, shape) in boxes.items()}
        offsets = {name: {"saved_offsets": box.offset} for name, (box, _) in boxes.items()}
        texts |= {DCP_KEY: json.dumps(offsets), "DCP_VERSION": "1.0"}
    return {**texts, DUALML_KEY: json.dumps(own)}


def metadata_table(file: SafetensorsFile, key: str) -> dict[str, Any] | None:
    """Return the JSON table that the file's metadata has under ``key``; None where there is none.

    Raises:
        UserError: it is not a table.
    """
    if (text := file.metadata.get(key)) is None:
        return None
    try:
        value = from_json(text.encode())
        if not isinstance(value, dict):
            raise ValueError("it is no table")
    except ValueError as error:
        raise UserError(f"{file.path}: {key} in its metadata: {error}") from None
    return value


def parse_counts(file: SafetensorsFile, what: str, value: Any) -> tuple[int, ...]:
    """Return ``value``, a list of non-negative integers from the file's metadata, as a tuple.

    Raises:
        UserError: it is something else; the text says that the file's metadata has no ``what``.
    """
    if not isinstance(value, list) or not all(type(n) is int and n >= 0 for n in value):
        raise UserError(f"{file.path}: its metadata has no {what}")
    return tuple(value)


def iter_shards(file: SafetensorsFile) -> Iterator[tuple[str, str, StoredShard]]:
    """Yield name, type and slice of each tensor of a file; a slice begins at 0 unless the file's
    metadata has offsets, of all its tensors then (else `UserError`)."""
    offsets = metadata_table(file, DCP_KEY)
    for name, entry in file.entries.items():
        offset: tuple[int, ...] = (0,) * len(entry.shape)
        if offsets is not None:
            place = offsets.get(name)
            value = place.get("saved_offsets") if isinstance(place, dict) else None
            offset = parse_counts(file, f"saved_offsets of {escape_unprintable(name)}", value)
            if len(offset) != len(entry.shape):
                raise UserError(
                    f"{file.path}: {escape_unprintable(name)} of shape {entry.shape} cannot begin "
                    f"at {offset}"
                )
        array = functools.partial(file.array, name)
        yield name, entry.kind, StoredShard(file.path, IndexBox(offset, entry.shape), array)


def tensors_of(path: Path, files: Sequence[SafetensorsFile]) -> dict[str, StoredTensor]:
    """Combine the tensors of files that form one checkpoint, by name; ``path`` is that of the
    checkpoint, for messages.

    Raises:
        UserError: files are missing; a tensor is stored twice, has two types or shapes, or is
            incomplete.
    """
    shards: dict[str, list[StoredShard]] = {}
    kinds: dict[str, str] = {}
    shapes: dict[str, Shape] = {}
    sliced = {file.path: DCP_KEY in file.metadata for file in files}
    for file in files:
        whole = (metadata_table(file, DUALML_KEY) or {}).get("shapes")
        for name, kind, shard in iter_shards(file):
            there = shards.setdefault(name, [])
            if there and not (sliced[file.path] and sliced[there[0].file]):
                raise UserError(
                    f"{path}: {escape_unprintable(name)} stands in {there[0].file.name} and in "
                    f"{file.path.name}, and nothing in them says which part each has"
                )
            if kinds.setdefault(name, kind) != kind:
                raise UserError(
                    f"{path}: {escape_unprintable(name)} is {kinds[name]} in {there[0].file.name} "
                    f"and {kind} in {file.path.name}"
                )
            there.append(shard)
            if isinstance(whole, dict) and name in whole:
                shape = parse_counts(file, f"shape of {escape_unprintable(name)}", whole[name])
            else:  # as torch reads it: as far as the slices reach
                shape = tuple(map(max, shapes.get(name, shard.box.end), shard.box.end))
            if len(shape) != len(shapes.get(name, shape)) or (
                isinstance(whole, dict) and shapes.get(name, shape) != shape
            ):
                raise UserError(
                    f"{path}: {escape_unprintable(name)} has two shapes, {shapes[name]} and {shape}"
                )
            shapes[name] = shape
    for name, shape in shapes.items():
        try:
            tensor_nbytes(escape_unprintable(name), kinds[name], shape)
        except ValueError as error:
            raise UserError(f"{path}: {error}") from None
    check_files(path, files, incomplete_tensors(shapes, shards))
    return {
        n: make_stored_tensor(path, n, kinds[n], shapes[n], parts) for n, parts in shards.items()
    }


def check_files(path: Path, files: Sequence[SafetensorsFile], lacking: Sequence[str]) -> None:
    """Raise `UserError` where a file's metadata has another number of files than there are in
    ``files``; ``lacking`` are the incomplete tensors, for the message."""
    for file in files:
        count = (metadata_table(file, DUALML_KEY) or {}).get("files", len(files))
        if count != len(files):
            which = f"; not whole without the others: {format_names(lacking)}" if lacking else ""
            if gone := absent_files(file.path.name, count, {other.path.name for other in files}):
                which += f"; missing: {format_names(gone)}"
            raise UserError(
                f"{path}: {file.path.name} is one of {count} files; {len(files)} "
                f"{'is' if len(files) == 1 else 'are'} here{which}"
            )


def absent_files(name: str, count: Any, there: Collection[str]) -> list[str]:
    """Return the names of the missing ones of ``count`` files, if ``name``, that of one of them,
    tells how the others are named; an empty list if it does not. ``there`` are the names that
    exist."""
    match = RANK_FILE.fullmatch(name)
    if match is None or type(count) is not int or count > 10**5:
        return []
    width = len(match["number"])
    every = [f"shard-{n:0{width}}{match['rest']}" for n in range(1, count + 1)]
    return [other for other in every if other not in there]


def incomplete_tensors(
    shapes: Mapping[str, Shape], shards: Mapping[str, Sequence[StoredShard]]
) -> list[str]:
    """Return the names of the tensors whose slices do not cover their shape."""
    return [n for n, own in shards.items() if uncovered_boxes(shapes[n], [s.box for s in own])]


def common_step(files: Sequence[SafetensorsFile]) -> int | None:
    """Return the number of updates made, or None if the files do not say.

    Raises:
        UserError: the files disagree.
    """
    steps = {file.path.name: (metadata_table(file, DUALML_KEY) or {}).get("step") for file in files}
    (first, step), *others = steps.items()
    for name, other in others:
        if other != step:
            raise UserError(f"files of different steps: {first} of {step}, {name} of {other}")
    return step if type(step) is int and step >= 0 else None
