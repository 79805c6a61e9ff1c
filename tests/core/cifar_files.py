"""Small files in CIFAR's binary format, and a registry entry for them."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from dualml.experiment.data import cifar
from dualml.experiment.data.registry import COLOUR, DATASETS, RecordInfo

SHARDS = {"cifar10": (6, 5, 4), "cifar100": (7, 4)}


def images(n: int, seed: int = 0) -> np.ndarray:
    """Return uint8 images (N, 3, 32, 32); red is darkest and blue is lightest."""
    draw = np.random.default_rng(seed)
    return draw.integers(0, [[[[90]], [[170]], [[256]]]], (n, *COLOUR)).astype(np.uint8)


def files(name: str) -> dict[str, bytes]:
    """Return file → bytes; classes cycle through ten, and five classes share a superclass."""
    wanted = [file.name for file in DATASETS[name].files]
    if name == "cifar10":
        wanted = [*wanted[:2], wanted[-1]]
    content = {}
    for number, (file, n) in enumerate(zip(wanted, SHARDS[name], strict=True)):
        fine = (np.arange(n) + number) % 10
        labels = (fine,) if name == "cifar10" else (fine // 5, fine + 40)
        content[file] = cifar.encode_records(images(n, number), *labels)
    return content


def archive(
    info: RecordInfo, content: dict[str, bytes], more: tuple[tarfile.TarInfo, ...] = ()
) -> bytes:
    """Return a gzipped tar of the files, preceded by a text page as in the real archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in {"readme.html": b"<html>", **content}.items():
            member = tarfile.TarInfo(f"{info.inside}/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for member in more:
            tar.addfile(member)
    return gzip.compress(packed.getvalue(), mtime=0)


def info_for(name: str, mirrors: tuple[str, ...] = (), data: bytes | None = None) -> RecordInfo:
    """Return a registry entry with the sizes and checksums of these files and their archive."""
    info = DATASETS[name]
    assert isinstance(info, RecordInfo)
    content = files("cifar10" if name == "cifar10" else "cifar100")
    shards = [
        (file, len(data) // (info.labels + 3072), f"sha256:{hashlib.sha256(data).hexdigest()}")
        for file, data in content.items()
    ]
    packed = archive(info, content) if data is None else data
    counts = [n for _, n, _ in shards]
    return replace(
        info,
        shards=shards,
        mirrors=mirrors,
        size=len(packed),
        train=sum(counts[:-1]),
        sha256=hashlib.sha256(packed).hexdigest(),
        test=counts[-1],
    )


def write(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file, data in files(name).items():
        (folder / file).write_bytes(data)
    return folder
