"""The user's own images: a folder of files in CIFAR-10's binary format.

``data_batch_*.bin`` are for training, ``test_batch.bin`` for testing; ``batches.meta.txt`` may name
the classes, one a line.
"""

from __future__ import annotations

import re
from pathlib import Path

from dualml.common.errors import UserError
from dualml.common.files import read_text
from dualml.experiment.data import cifar
from dualml.experiment.data.idx import file_error
from dualml.experiment.data.registry import COLOUR, RecordFile, RecordInfo

TRAIN, TEST, NAMES = re.compile(r"data_batch_\d+\.bin"), "test_batch.bin", "batches.meta.txt"
#: Bytes of a record: the class and the image.
RECORD = RecordFile("", 1, 1, "").record
REMEDY = f"records of {RECORD:,} bytes: the class, and 3×32×32 bytes of pixels"
#: Bytes of the names of 256 classes.
MAX_NAMES_BYTES = 2**16
#: Maximum number of training and test images of a folder: ten times as many as CIFAR has.
MAX_IMAGES = 600_000


def is_folder(name: str) -> bool:
    """Return whether a dataset's name is the path of a folder that has the file `TEST`."""
    return Path(name, TEST).is_file()


def describe_folder(folder: Path) -> RecordInfo:
    """Describe a folder of images by the lengths of its files; ``mean`` 0 and ``std`` 1 are
    placeholders, and ``classes`` is empty without a file of names.

    Raises:
        UserError: there are no training files, a file is cut short, or there are too many images.
    """
    names = sorted(path.name for path in folder.iterdir() if TRAIN.fullmatch(path.name))
    if not names:
        raise UserError(f"{folder} has {TEST}, but no data_batch_1.bin to train on")
    shards = []
    for name in [*names, TEST]:
        length = (folder / name).stat().st_size
        file = RecordFile(name, max(1, -(-length // RECORD)), 1, "")
        cifar.check_file_size(folder / name, file, length, REMEDY)
        shards.append((name, file.records, ""))
    counts = [records for _, records, _ in shards]
    if sum(counts) > MAX_IMAGES:
        raise file_error(folder, f"has {sum(counts):,} images; at most {MAX_IMAGES:,} are read")
    path = folder / NAMES
    lines = read_text(path, MAX_NAMES_BYTES).split() if path.is_file() else []
    return RecordInfo(
        name=folder.resolve().name,
        what=f"images of {folder}",
        licence="the user's own",
        provenance=str(folder),
        train=sum(counts[:-1]),
        test=counts[-1],
        classes=lines,
        mean=(0.0,) * COLOUR[0],
        std=(1.0,) * COLOUR[0],
        home=folder.name,
        archive="",
        inside="",
        size=0,
        sha256="",
        labels=1,
        label=0,
        shards=shards,
    )
