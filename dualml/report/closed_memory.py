"""The closed form of the memory of weights, gradients and optimizer state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dualml.algorithms.model.spec import ModelSpec
from dualml.common.words import numbers
from dualml.experiment.methods import METHODS, MethodInfo
from dualml.experiment.store.manifest import DeviceMemory
from dualml.experiment.store.run import RunData
from dualml.parallel.memory import (
    PARTS,
    StateMemory,
    sharded_parts,
    sharing_ranks,
    size_per_parameter,
)
from dualml.parallel.offload.settings import KINDS
from dualml.parallel.zero import Unit, units_of

MIB = 2**20
#: Components of the memory that have a closed form.
CLOSED_FORM_PARTS = PARTS


def mib(nbytes: float | None) -> float | None:
    """Convert bytes to MiB, None to None."""
    return None if nbytes is None else nbytes / MIB


@dataclass(frozen=True)
class ClosedForm:
    """Closed form of the memory per rank (`dualml.parallel.memory`), beside the counted bytes.

    Args:
        sizes: bytes of each component per parameter on the device, before sharding; 0 for what is
            offloaded. Master copies of the weights that an engine updates count as state.
        shares: number of ranks that share each component.
        counted: the bytes that every rank counted, with its Ψ according to the plan.
        info: the method, which declares what its ranks shard; None for dualml's own training.
        padding: zeros appended to the Ψ parameters to make them divisible.
    """

    sizes: StateMemory
    shares: StateMemory
    counted: Sequence[DeviceMemory]
    info: MethodInfo | None
    padding: int = 0

    @property
    def nbytes(self) -> float:
        """Bytes of weights, gradients and state on rank 0 by the closed form, after sharding."""
        psi = (self.counted[0].parameters or 0) + self.padding
        return float(self.sizes.on_rank(psi, self.shares).total)

    @property
    def text(self) -> str:
        """The formula with its value in MiB, e.g. ``(4 + 4/2 + 8/2)Ψ = 12``; ``(Ψ + 2)`` with two
        padding zeros."""
        terms = []
        for part in CLOSED_FORM_PARTS:
            each, ranks = getattr(self.sizes, part), getattr(self.shares, part)
            terms.append(f"{each}/{ranks}" if each and ranks > 1 else str(each))
        psi = f"(Ψ + {self.padding})" if self.padding else "Ψ"
        return f"({' + '.join(terms)}){psi} = {numbers.quantity(self.nbytes / MIB)}"

    @property
    def max_counted_bytes(self) -> int:
        """Counted bytes of weights, gradients and state on the rank that holds most."""
        return max(rank.weights + rank.gradients + rank.state for rank in self.counted)

    @property
    def differences(self) -> dict[str, int]:
        """Component → counted bytes minus the closed form: summed over all ranks if they shard it,
        else of the rank with the largest deviation. Components that agree are left out."""
        differences = {}
        for part in CLOSED_FORM_PARTS:
            each = getattr(self.sizes, part)
            psi = [(rank.parameters or 0) + self.padding for rank in self.counted]
            counts = [getattr(rank, part) for rank in self.counted]
            apart = [n - each * own for n, own in zip(counts, psi, strict=True)]
            together = [sum(counts) - each * psi[0]]
            differences[part] = max(together if getattr(self.shares, part) > 1 else apart, key=abs)
        return {part: n for part, n in differences.items() if n}


def closed_form(
    run: RunData, arm: str, backend: str, counted: Sequence[DeviceMemory]
) -> ClosedForm | None:
    """Return the closed form of an arm on a backend. None if the number of parameters is unknown,
    the dtype is neither float32 nor float64, or an arm that shards or offloads is also split into
    pipeline stages or tensor slices, or has an unknown model."""
    dtype = str(run.environment.get(backend, {}).get("dtype", ""))
    if dtype not in ("float32", "float64") or not all(rank.parameters for rank in counted):
        return None
    settings = run.settings[arm]
    info = METHODS.get(run.framework(backend), {}).get(settings.method)
    slots, size = len(settings.rule.state_keys), np.dtype(dtype).itemsize
    n, offload = len(counted), settings.offload
    if not settings.zero and offload is None:
        sizes = size_per_parameter(size, slots + (info.masters if info else 0))
        if info and info.weight_bytes:
            sizes = replace(sizes, weights=info.weight_bytes)
        return ClosedForm(sizes, sharing_ranks(info.shards if info else (), n), counted, info)
    units = sharding_units(run, arm)
    if units is None or settings.split is not None:
        return None
    padding = sum(unit.length - unit.size for unit in units)
    lower = (2 if size == 4 else size) * settings.zero_lower  # the reference rounds float64
    away = [kind for kind in KINDS if offload is not None and offload.is_offloaded(kind)]
    sizes = replace(size_per_parameter(size, slots, lower), **dict.fromkeys(away, 0))
    shares = sharing_ranks(sharded_parts(settings.zero), n)
    return ClosedForm(sizes, shares, counted, None, padding)


def sharding_units(run: RunData, arm: str) -> list[Unit] | None:
    """Return the units in which ZeRO or offloading divides the parameters of an arm's model,
    padding included; None if its model is unknown."""
    settings = run.settings[arm]
    name = settings.variant or str(run.experiment.get("model"))
    if name not in run.models:
        return None
    spec = ModelSpec.restore(dict(run.models[name]))
    return units_of(spec, settings.sharding.bucket_bytes, settings.world_size)
