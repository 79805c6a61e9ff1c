"""The user's options about weight files and maps, and what a comparison writes for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.common.files import read_json
from dualml.experiment.comparison import Note
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.sides import LETTERS, ResolvedSide
from dualml.parity.models.weights.loading import read_sides
from dualml.parity.models.weights.map_file import check_suffix, describe_map, write_map
from dualml.parity.models.weights.opening import open_weights
from dualml.parity.models.weights.pair_run import run_pairing
from dualml.parity.models.weights.writing import check_free, check_target, write_other_side


@dataclass(frozen=True)
class WeightOptions:
    """Files of weights and of the map that a comparison reads and writes.

    Args:
        weights: file or folder with the weights of one side: safetensors, in one file or in
            several, ``.ckpt`` or ``.npz``.
        prefix: ``OLD=NEW``: names in it that begin with OLD begin with NEW; ``OLD``: OLD is
            removed.
        side: ``a`` or ``b``, the side whose weights they are; empty: found by names and shapes.
        write_map: file for the map of both models, ``.json`` or ``.toml``.
        write_weights: file for the checkpoint of the side that the weights do not come from, in its
            own names and layouts, ``.safetensors`` or ``.ckpt``.
        overwrite: whether files that exist may be overwritten.

    Example:
        >>> WeightOptions("gpt2", write_weights="gpt2.ckpt").prefix
        ''
    """

    weights: str | Path | None = None
    prefix: str = ""
    side: str = ""
    write_map: str | Path | None = None
    write_weights: str | Path | None = None
    overwrite: bool = False

    def check(self) -> None:
        """Check that all files can be read or written; weights are opened, but nothing is written.

        Raises:
            UserError: one of them cannot, or options contradict one another.
        """
        if self.side not in ("", *LETTERS):
            raise UserError(f"--weights-side is a or b; received {self.side!r}")
        if self.weights is None and (self.prefix or self.side):
            raise UserError("--weights-prefix and --weights-side need --weights")
        sources: tuple[Path, ...] = ()
        if self.weights is not None:
            files = open_weights(Path(self.weights).expanduser())
            sources = files.files
            if self.prefix:
                files.rename(self.prefix)
        if self.write_map is not None:
            check_suffix(Path(self.write_map))
            check_free(Path(self.write_map), self.overwrite, "--write-map")
        if self.write_weights is not None:
            check_target(Path(self.write_weights), self.overwrite, sources)

    def describe(self) -> dict[str, str] | None:
        """Return ``path``, ``prefix`` and ``side`` of the weights, as a job has them; None without
        weights."""
        if self.weights is None:
            return None
        path = str(Path(self.weights).expanduser().resolve())
        return {"path": path, "prefix": self.prefix, "side": self.side}


def loaded_notes(job: dict[str, Any]) -> list[Note]:
    """Return the notes of a comparison about the weights that its job loads; empty if it loads
    none."""
    if not job.get("weights"):
        return []
    values = job["weights"]["note"]
    return [Note("weights", values), *([Note("weights_extra", values)] if values["more"] else [])]


def write_results(
    options: WeightOptions,
    folder: Path,
    sides: Sequence[ResolvedSide],
    batches: Sequence[NDArray[Any]],
    found: ModelComparison,
) -> ModelComparison:
    """Write the map and the weights that the user asks for after a comparison, with the pairs that
    it ended with, and return the comparison with notes about weights and files.

    Args:
        folder: folder of the comparison, with its job.

    Raises:
        UserError: a file cannot be written, or the numbers of a checkpoint that was loaded back are
            others.
    """
    job = read_json(folder / "job.json")
    notes = loaded_notes(job)
    if options.write_map is not None or options.write_weights is not None:
        run_pairing(folder, job, sides, batches)
        notes += write_files(options, folder, job, sides)
    return replace(found, notes=(*found.notes, *notes))


def write_files(
    options: WeightOptions, folder: Path, job: dict[str, Any], sides: Sequence[ResolvedSide]
) -> list[Note]:
    """Write the map and the weights that the user asks for, of two models that were paired in
    ``folder``; return a note for each file."""
    notes = []
    if options.write_map is not None:
        models, matched = read_sides(folder, job)
        write_map(Path(options.write_map), describe_map(models, matched))
        notes.append(Note("map_written", {"file": Path(options.write_map).name}))
    if options.write_weights is not None:
        written = write_other_side(Path(options.write_weights), folder, job, sides)
        notes.append(Note("weights_written", written))
    return notes
