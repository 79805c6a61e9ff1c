"""A checkpoint as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.common.errors import escape_unprintable
from dualml.common.json_types import JsonObject
from dualml.common.words import Messages
from dualml.planning.cost.units import format_bytes
from dualml.report.blocks import Column, Table
from dualml.runner.checkpoint.stored_checkpoint import Checkpoint


def describe_checkpoint(checkpoint: Checkpoint) -> JsonObject:
    """Return everything known of a checkpoint without its tensors' values, as JSON values,
    including where each slice is stored."""
    return {
        "path": str(checkpoint.path),
        "format": checkpoint.format,
        "step": checkpoint.step,
        "layout": dict(checkpoint.layout),
        "about": dict(checkpoint.about),
        "elements": checkpoint.elements,
        "bytes": checkpoint.nbytes,
        "files": {str(path): vars(written) for path, written in checkpoint.files.items()},
        "tensors": [
            {
                "name": name,
                "type": tensor.kind,
                "shape": list(tensor.shape),
                "bytes": tensor.nbytes,
                "shards": [
                    {
                        "file": str(shard.file),
                        "offset": list(shard.box.offset),
                        "shape": list(shard.box.shape),
                    }
                    for shard in tensor.shards
                ],
            }
            for name, tensor in checkpoint.tensors.items()
        ],
    }


def title_lines(checkpoint: Checkpoint, words: Messages) -> Iterator[str]:
    """Yield the lines above the table: a summary of the checkpoint, then the facts in its
    manifest."""
    files = {shard.file for t in checkpoint.tensors.values() for shard in t.shards}
    yield words(
        "checkpoint.title",
        path=escape_unprintable(str(checkpoint.path)),
        format=checkpoint.format,
        tensors=words.count("tensor", len(checkpoint.tensors)),
        files=words.count("file", len(files)),
        elements=words.count("element", checkpoint.elements),
        bytes=format_bytes(checkpoint.nbytes),
    )
    if checkpoint.step is not None:
        yield words("checkpoint.step", step=f"{checkpoint.step:,}")
    for key, values in (("layout", checkpoint.layout), ("about", checkpoint.about)):
        if values:
            each = (
                f"{escape_unprintable(str(name))} = {escape_unprintable(str(value))}"
                for name, value in values.items()
            )
            yield words(f"checkpoint.{key}", values=", ".join(each))


def tensor_table(checkpoint: Checkpoint, words: Messages) -> Table:
    """Return the tensors as a table: name, shape, type, number of shards, bytes."""
    numbers = ("shards", "bytes")
    columns = [
        Column(key, words(f"checkpoint.column.{key}"), show="number" if key in numbers else "text")
        for key in ("name", "shape", "type", *numbers)
    ]
    rows = [
        [
            escape_unprintable(name),
            " × ".join(f"{n:,}" for n in tensor.shape) or words("checkpoint.scalar"),
            tensor.kind,
            f"{len(tensor.shards):,}",
            f"{tensor.nbytes:,}",
        ]
        for name, tensor in checkpoint.tensors.items()
    ]
    return Table("tensors", "", columns, rows)
