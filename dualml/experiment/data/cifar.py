"""CIFAR's binary format: a sequence of records, each of some label bytes and one image.

    CIFAR-10: class | CIFAR-100: superclass, class; then 1024 bytes of red, of green, and of blue,
    row by row

Source: Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images", and the page of
the data set, section "Binary version".
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dualml.common.array_types import Array
from dualml.common.errors import UserError
from dualml.experiment.data.idx import check_digest, file_error, read_data
from dualml.experiment.data.registry import COLOUR, RecordFile, RecordInfo


def read_verified_records(
    path: Path, file: RecordFile, remedy: str, data: bytes | None = None
) -> bytes:
    """Return the bytes of a record file after checking its length, and its checksum if ``file`` has
    one.

    Args:
        path: the file; with ``data``, only its name for error messages.
        remedy: what the user should do about a bad file, for error messages.
        data: the file's content, if it is in memory and was never written to disk; else None.

    Raises:
        UserError: it cannot be read, has another length, or another checksum.
    """
    if data is None:
        data = read_data(path, file.size + file.record, remedy)
    check_file_size(path, file, len(data), remedy)
    if file.checksum:
        check_digest(path, data, file.checksum, remedy)
    return data


def check_file_size(path: Path, file: RecordFile, length: int, remedy: str) -> None:
    """Raise `UserError` if ``length``, the bytes of the file at ``path``, is not that of ``file``:
    the file is truncated or longer than its records. Nothing is read."""
    if length == file.size:
        return
    whole, rest = divmod(length, file.record)
    how = "is cut short" if length < file.size else "has bytes after its end"
    raise file_error(
        path,
        f"{how}: {file.records:,} records of {file.record:,} bytes need {file.size:,} bytes, "
        f"found {length:,} ({whole:,} records and {rest:,} bytes)",
        remedy,
    )


def read_images(info: RecordInfo, folder: Path, remedy: str) -> tuple[Array, Array, Array, Array]:
    """Read a dataset from the files in ``folder``: training images uint8 (N, 3, 32, 32) and labels
    uint8 (N,), then test images and labels.

    Raises:
        UserError: a file is missing or bad; the text ends with ``remedy``.
    """
    images = [np.empty((n, *COLOUR), np.uint8) for n in (info.train, info.test)]
    labels = [np.empty(n, np.uint8) for n in (info.train, info.test)]
    done = 0
    for number, file in enumerate(info.files, start=1):
        path = folder / file.name
        if not path.is_file():
            raise file_error(path, "is missing", remedy)
        content = read_verified_records(path, file, remedy)
        records = np.frombuffer(content, np.uint8).reshape(file.records, file.record)
        last = number == len(info.files)
        part = slice(0, file.records) if last else slice(done, done + file.records)
        images[last][part] = records[:, file.labels :].reshape(-1, *COLOUR)
        labels[last][part] = records[:, info.label]
        done += file.records
    return images[0], labels[0], images[1], labels[1]


def encode_records(images: Array, *labels: Array) -> bytes:
    """Encode images uint8 (N, 3, 32, 32) and the bytes of their labels as records, in their order.

    Raises:
        UserError: images of another shape or type.
    """
    if images.dtype != np.uint8 or images.shape[1:] != COLOUR:
        raise UserError(
            f"images must be uint8 (N, 3, 32, 32); received {images.dtype} of shape {images.shape}"
        )
    columns = [np.asarray(label, np.uint8).reshape(-1, 1) for label in labels]
    return np.hstack([*columns, images.reshape(len(images), -1)]).tobytes()
