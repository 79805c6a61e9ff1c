"""A partition stored in a file, made once and reused by every training."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dualml.common.arrays import fingerprint, read_npz
from dualml.common.errors import UserError
from dualml.common.files import convert_read_errors, write_bytes
from dualml.common.parse import from_json
from dualml.parallel.partition.base import PARTITIONS, Guarantees, Index, Partition, Samples

FORMAT = 1


@PARTITIONS.register("file", 140)
@dataclass(frozen=True, kw_only=True)
class FromFile(Partition):
    """Reads the lists that `save_partition` wrote: one per rank, for exactly these samples.

    Args:
        path: path of the file, relative to the working directory.
    """

    needs_labels: ClassVar[bool] = True

    path: str

    def assign(self, samples: Samples, ranks: int, draw: np.random.Generator) -> list[Index]:
        """Return the lists of the file in their stored order; ``draw`` is not used.

        Raises:
            UserError: the file cannot be read, or the lists belong to other samples, or to another
                number of ranks.
        """
        parts, about = load_partition(Path(self.path))
        labels = np.asarray(samples)
        if about["labels"] != fingerprint(labels.astype(np.int64)):
            raise UserError(
                f"{self.path} partitions {about['samples']} samples of {about['dataset']}; these "
                f"are {len(labels)} other ones (their labels have another SHA-256)"
            )
        if len(parts) != ranks:
            raise UserError(f"{self.path} is for {len(parts)} ranks, not for {ranks}")
        return parts

    def guarantees(self, samples: Samples, ranks: int) -> Guarantees:
        """Return no guarantee, because the file may hold any lists."""
        return Guarantees(None, None)


def save_partition(
    path: Path,
    parts: Sequence[Index],
    labels: Index,
    dataset: str,
    rule: Partition,
    seed: int = 0,
    epoch: int = 0,
) -> None:
    """Write one partition to ``path`` as ``.npz``: no pickle, readable without dualml; a file that
    exists is replaced.

    Args:
        parts: positions of each rank.
        labels: labels of all samples, in their order; they later identify the samples.
        dataset: name of the dataset, for messages.
        rule, seed, epoch: how the partition was made; only recorded.
    """
    about = {
        "format": FORMAT,
        "dataset": dataset,
        "samples": len(labels),
        "labels": fingerprint(np.asarray(labels, np.int64)),
        "rule": rule.describe(),
        "seed": seed,
        "epoch": epoch,
        "ranks": len(parts),
    }
    packed = io.BytesIO()
    lists: dict[str, Any] = {f"rank{rank}": part for rank, part in enumerate(parts)}
    np.savez_compressed(packed, about=np.array(json.dumps(about)), **lists)
    write_bytes(path, packed.getvalue())


def load_partition(path: Path) -> tuple[list[Index], dict[str, Any]]:
    """Return the lists of a partition file, int64, and its metadata: ``dataset`` (name),
    ``samples`` (their number), ``labels`` (their SHA-256) and ``rule`` (its `describe`).

    Raises:
        UserError: the file is missing, damaged, not a partition, or of a newer format.
    """
    if not path.is_file():
        raise UserError(f"there is no partition file {path}; make one with dualml partition --out")
    with convert_read_errors(f"{path}: not a readable partition"):
        packed = read_npz(path, "not a readable partition")
        about = from_json(str(packed["about"]).encode())
        if int(about["format"]) > FORMAT:
            raise UserError(
                f"{path}: format {about['format']} is newer than {FORMAT}; update dualml"
            )
        parts = [packed[f"rank{rank}"] for rank in range(int(about["ranks"]))]
        for rank, part in enumerate(parts):
            if part.ndim != 1 or part.dtype.kind not in "iu":
                raise ValueError(f"rank{rank} is {part.dtype}{part.shape}, not a list of indices")
            if len(part) and not 0 <= int(part.min()) <= int(part.max()) < int(about["samples"]):
                raise ValueError(
                    f"rank{rank} has indices from {part.min()} to {part.max()} of "
                    f"{about['samples']} samples"
                )
        lists = [part.astype(np.int64) for part in parts]
        return lists, {key: about[key] for key in ("dataset", "samples", "labels", "rule")}
