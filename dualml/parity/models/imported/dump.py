"""The contents of another tool's dump, and its conversion to a trace."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.arrays import read_npy
from dualml.parity.models.layers import canonical_type
from dualml.parity.models.partners import Tensor
from dualml.parity.models.trace import Trace, array_key, hash_array

#: Prefix of gradients with respect to outputs: ``backward:conv1`` belongs to ``conv1``.
BACKWARD = "backward:"


@dataclass(frozen=True)
class DumpedTensor:
    """One tensor of a dump.

    Attributes:
        shape: shape of the tensor.
        summary: see `summarize`; NaN where the tool wrote none.
        file: the file with its numbers; None if there is none, or only a pickle.
        trained: whether it requires a gradient.
    """

    shape: tuple[int, ...]
    summary: tuple[float, ...]
    file: Path | None = None
    trained: bool = True

    def value(self, summarised: bool) -> NDArray[Any]:
        """Read and return the tensor; its summary as a float64 vector if ``summarised``, or if it
        has no file."""
        if summarised or self.file is None:
            return np.array(self.summary, np.float64)
        return read_npy(self.file)

    def start_value(self, summarised: bool) -> NDArray[Any]:
        """Return what must be exactly equal on both sides initially: the tensor, or, if
        ``summarised``, its largest and smallest element (the mean would be rounded)."""
        return np.array(self.summary[:2], np.float64) if summarised else self.value(False)


@dataclass
class DumpedStep:
    """The tensors of one step, by name except for the inputs.

    Attributes:
        inputs: inputs of the model.
        outputs: outputs of modules in execution order, then the gradients with respect to them.
        parameters: parameters before the step.
        gradients: gradients of the parameters.
    """

    inputs: list[DumpedTensor] = field(default_factory=list)
    outputs: dict[str, DumpedTensor] = field(default_factory=dict)
    parameters: dict[str, DumpedTensor] = field(default_factory=dict)
    gradients: dict[str, DumpedTensor] = field(default_factory=dict)

    def all_tensors(self) -> Iterator[DumpedTensor]:
        """Yield all tensors of the step."""
        yield from self.inputs
        for table in (self.outputs, self.parameters, self.gradients):
            yield from table.values()


@dataclass(frozen=True)
class Dump:
    """A dump of several steps (at least one).

    Attributes:
        tool: name of the tool.
        framework: ``torch`` or ``mindspore``.
        modules: name of a module → its type.
        pickled: whether tensors are in files that would have to be unpickled.
    """

    tool: str
    framework: str
    modules: Mapping[str, str]
    steps: Sequence[DumpedStep]
    pickled: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether the dump has a readable file with the numbers of every tensor."""
        return all(saved.file is not None for step in self.steps for saved in step.all_tensors())

    def to_trace(self, summarised: bool) -> Trace:
        """Convert the dump to a trace as a `Recorder` would have written it, without draws.

        Args:
            summarised: replace each tensor by its summary.

        Raises:
            UserError: a file is missing or damaged.
        """
        first, arrays = self.steps[0], {}
        for name, saved in first.parameters.items():
            arrays[array_key("parameters", 0, name)] = saved.start_value(summarised)
        for number, step in enumerate(self.steps, 1):
            phases = {"forward": step.outputs, "gradient": step.gradients}
            for phase, table in phases.items():
                for name, saved in table.items():
                    arrays[array_key(phase, number, name)] = saved.value(summarised)
            for name, saved in step.parameters.items() if number > 1 else ():
                arrays[array_key("update", number - 1, name)] = saved.value(summarised)
        every = (saved.shape[1:] for step in self.steps for saved in step.all_tensors())
        return Trace(
            framework=self.framework,
            environment={"tool": self.tool},
            tensors=[Tensor(n, s.shape, s.trained) for n, s in first.parameters.items()],
            modules=dict(self.modules),
            steps=len(self.steps),
            inputs=[
                [hash_array(s.start_value(summarised)) for s in step.inputs] for step in self.steps
            ],
            order=[list(step.outputs) for step in self.steps],
            longest_axis=max((n for shape in every for n in shape), default=1),
            arrays=arrays,
        )


def backward_type(type_name: str) -> str:
    """Return the name that stands for the type of a module's gradient with respect to its output:
    the module's type in PyTorch's terms and ``backward``."""
    return f"{canonical_type(type_name)} backward"


def summarize(
    largest: Any, smallest: Any, mean: Any, norm: Any, shape: Sequence[int]
) -> tuple[float, ...]:
    """Return the statistics of a tensor: largest, smallest, mean and root mean square.

    The mean is left out if it is missing while ``largest`` is a number, and the root mean square if
    ``norm`` is missing; other missing numbers become NaN.

    Args:
        largest, smallest, mean: numbers as the tool wrote them; anything else is missing, as is
            NaN.
        norm: the Euclidean norm, or None.
        shape: shape of the tensor.
    """
    known = [largest, smallest]
    if not (_is_missing(mean) and not _is_missing(largest)):
        known.append(mean)
    if not _is_missing(norm):
        known.append(float(norm) / math.sqrt(math.prod(shape) or 1))
    return tuple(math.nan if _is_missing(number) else float(number) for number in known)


def _is_missing(number: Any) -> bool:
    """Return whether a statistic is absent or NaN."""
    return not isinstance(number, int | float) or math.isnan(number)
