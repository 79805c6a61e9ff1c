"""Load the weights of a file into the first side of a comparison, in its worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dualml.common.files import read_json
from dualml.common.json_types import JsonObject
from dualml.common.tensor_files import LazyArrays
from dualml.parity.models.cuts import plan_cuts
from dualml.parity.models.mapping import match_tensors
from dualml.parity.models.matchers import is_name_ending
from dualml.parity.models.pairing import MatchedTensors
from dualml.parity.models.partners import Tensor, canonical_name
from dualml.parity.models.pieces import cut_tensors
from dualml.parity.models.recorder import Recorder
from dualml.parity.models.trace import Trace, read_trace
from dualml.parity.models.weights.fitting import SideModel, WeightFit, find_side, fit_side
from dualml.parity.models.weights.opening import open_weights
from dualml.parity.models.weights.stored import WeightFiles

#: Folder of a comparison with what the pairing of both models left.
PAIRS = "pairs"
STORED = "stored.json"


def open_job_weights(job: JsonObject) -> WeightFiles:
    """Open the weight file that a job names, with the job's change of prefix applied to its names;
    only headers are read."""
    given = job["weights"]
    files = open_weights(Path(given["path"]))
    return files.rename(given["prefix"]) if given["prefix"] else files


def read_sides(folder: Path, job: JsonObject) -> tuple[tuple[SideModel, SideModel], MatchedTensors]:
    """Return the models of both sides, and their paired tensors, from the traces that an earlier
    pairing left in the comparison's folder; raise `UserError` if they cannot be paired."""
    a, b = read_paired_traces(folder)
    labels = job["sides"]["a"]["label"], job["sides"]["b"]["label"]
    models = [
        SideModel(label, trace.tensors, read_json(folder / PAIRS / letter / STORED))
        for letter, label, trace in zip("ab", labels, (a, b), strict=True)
    ]
    cuts = plan_cuts(a.tensors, b.tensors, job["map"])
    first, second = cut_tensors(a.tensors, cuts[0]), cut_tensors(b.tensors, cuts[1])
    pairing = match_tensors(
        first, second, job["map"], labels, b.roles, b.guesses, complete=job.get("complete", True)
    )
    return (models[0], models[1]), MatchedTensors(pairing, first, second, cuts)


def read_paired_traces(folder: Path) -> tuple[Trace, Trace]:
    """Return the traces of side ``a`` and ``b`` that an earlier pairing left in the comparison's
    folder; they have the tensors of both models, and the values of buffers."""
    return read_trace(folder / PAIRS / "a"), read_trace(folder / PAIRS / "b")


def arrays_of_fit(files: WeightFiles, fit: WeightFit) -> LazyArrays:
    """Return name in the model → array of the file, for the tensors that fit, each read when it is
    looked up."""
    arrays = LazyArrays()
    for name, stored in fit.found.items():
        tensor = files.tensors[stored]
        arrays.add(name, tensor.shape, tensor.read)
    return arrays


class TiedValues:
    """Function that returns values of parameters which one side keeps apart and the other shares
    between modules, such as a head that the other side ties to its embedding.

    Args:
        stored: for the side that shares: name of a tensor → its names in a checkpoint.
    """

    def __init__(self, stored: Mapping[str, Sequence[str]]) -> None:
        self.aliases = {
            canonical_name(alias): name
            for name, names in stored.items()
            if len(names) > 1
            for alias in names
        }

    def source(self, tensor: Tensor) -> str | None:
        """Return the name of the shared tensor of which a further name equals that of ``tensor``,
        or one of the two ends with the other; None if there is none, or several."""
        name = canonical_name(tensor.name)
        near = {
            own
            for alias, own in self.aliases.items()
            if alias == name or is_name_ending(alias, name)
        }
        return near.pop() if len(near) == 1 else None

    def __call__(self, tensor: Tensor, arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any] | None:
        """Return the value in ``arrays`` of the shared tensor that is the source of ``tensor``;
        None if there is none, or one of another shape."""
        name = self.source(tensor)
        if name is None or name not in arrays:
            return None
        value = arrays[name]
        return value if value.shape == tensor.shape else None


def carry_weights(
    folder: Path, job: JsonObject, target: str
) -> tuple[SideModel, LazyArrays | Mapping[str, NDArray[Any]]]:
    """Return the model of a side, and the weights of a job by that model's names and in its
    layouts, each read when it is looked up.

    Without a weight file, the weights are the initial ones of the first side, from its trace.

    Args:
        target: letter of the side.

    Raises:
        UserError: the weights fit no side, or cannot be read.
    """
    models, matched = read_sides(folder, job)
    if job.get("weights"):
        files = open_job_weights(job)
        source, fit = find_side(files, models, job["weights"]["side"])
        arrays: Mapping[str, NDArray[Any]] = arrays_of_fit(files, fit)
    else:
        source, arrays = "a", read_trace(folder / "a").initial_parameters()
    if source == target:
        return models["ab".index(target)], arrays
    if target == "b":
        return models[1], matched.carry_to_second(arrays, TiedValues(models[0].stored))
    return models[0], matched.carry_to_first(arrays, TiedValues(models[1].stored))


def load_first_weights(recorder: Recorder, folder: Path, job: JsonObject) -> None:
    """Load the weights of a job, if it names any, into the first side's model, one tensor at a
    time; weights of the second side are converted to the first."""
    if not job.get("weights"):
        return
    if job["weights"]["side"] == "b":
        recorder.load(carry_weights(folder, job, "a")[1])
        return
    model = SideModel(job["sides"]["a"]["label"], recorder.tensors(), recorder.stored_names())
    files = open_job_weights(job)
    recorder.load(arrays_of_fit(files, fit_side(files.tensors, model)))
