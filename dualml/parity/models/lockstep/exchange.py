"""Records that the first side writes for the second: inputs, outputs and gradients of a block."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dualml.common.errors import TrialError, UserError
from dualml.common.files import read_json, write_json
from dualml.common.tensor_files import LazyArrays, TensorFileWriter, index_tensors
from dualml.parity.models.trace_files import HEADER_BYTES_PER_ARRAY

#: End of the names of the files with the results of both sides.
RESULT = ".blocks.json"
#: Seconds between two looks for a record.
POLL_S = 0.02


@dataclass(frozen=True)
class BlockRecord:
    """A record: arrays that are read when they are looked up, and the facts that were written with
    them."""

    arrays: Mapping[str, NDArray[Any]]
    facts: dict[str, Any]


class RecordFolder:
    """A folder in which one process writes records and another waits for them.

    Args:
        folder: made if needed.
        timeout: seconds that a record is waited for.
    """

    def __init__(self, folder: Path, timeout: float) -> None:
        self.folder, self.timeout = folder, timeout
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, arrays: Mapping[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        """Write a record under a name; its arrays are looked up one by one. It appears to the other
        process when it is complete.

        Raises:
            UserError: there is no space left.
        """
        try:
            if arrays:
                reserve = HEADER_BYTES_PER_ARRAY * (len(arrays) + 1)
                writer = TensorFileWriter(self.folder / f"{name}.safetensors", reserve)
                for key in arrays:
                    writer.append(key, arrays[key])
                writer.finish()
            write_json(self.folder / f"{name}.json", {**facts, "arrays": bool(arrays)})
        except OSError as error:
            raise UserError(
                f"{self.folder}: {error.strerror or error}; activations of all blocks and "
                "gradients of two are kept on the disk: name a larger one with folder= or TMPDIR"
            ) from None

    def has_record(self, name: str) -> bool:
        """Return whether a record is there by now, completely written; never wait for it."""
        return (self.folder / f"{name}.json").exists()

    def read(self, name: str) -> BlockRecord:
        """Return a record that is there; its arrays are read when they are looked up."""
        facts, arrays = read_json(self.folder / f"{name}.json"), LazyArrays()
        if facts["arrays"]:
            path = self.folder / f"{name}.safetensors"
            for key, one in index_tensors(path, "not a readable record").items():
                arrays.add(key, one.shape, one.read)
        return BlockRecord(arrays, facts)

    def wait(self, name: str, end: str = "") -> BlockRecord | None:
        """Wait for a record and read it.

        Args:
            end: name of the record that is written last; empty if there is none.

        Returns:
            The record; None if the record ``end`` is there and this one is not.

        Raises:
            TrialError: it did not arrive in time.
        """
        deadline = time.monotonic() + self.timeout
        while not self.has_record(name):
            if end and self.has_record(end) and not self.has_record(name):
                return None
            if time.monotonic() > deadline:
                raise TrialError(f"the record {name} did not come in time")
            time.sleep(POLL_S)
        return self.read(name)

    def wait_until_gone(self, name: str) -> None:
        """Wait until the other process has used and deleted a record; raise `TrialError` if it does
        not within the timeout."""
        deadline = time.monotonic() + self.timeout
        while self.has_record(name):
            if time.monotonic() > deadline:
                raise TrialError(f"the record {name} was not read in time")
            time.sleep(POLL_S)

    def delete(self, name: str) -> None:
        """Delete a record, if it is there."""
        (self.folder / f"{name}.safetensors").unlink(missing_ok=True)
        (self.folder / f"{name}.json").unlink(missing_ok=True)
