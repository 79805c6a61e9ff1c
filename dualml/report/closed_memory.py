"""The closed form of the memory of weights, gradients and optimizer state."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from dualml.algorithms.model.spec import ModelSpec
from dualml.common.words import numbers
from dualml.experiment.methods import METHODS, MethodInfo
from dualml.experiment.store.manifest import DeviceMemory
from dualml.experiment.store.run import RunData
from dualml.parallel.offload.settings import KINDS
from dualml.parallel.zero import Unit, units_of

MIB = 2**20
#: Components of the memory that have a closed form.
CLOSED_FORM_PARTS = ("weights", "gradients", "state")


@dataclass(frozen=True)
class ClosedForm:
    """Closed form of the memory per rank: bΨ + bΨ + kbΨ bytes for Ψ parameters of b bytes and an
    optimizer with k state tensors per parameter. Components that n ranks shard are divided by n;
    master copies of the weights that an engine updates count as state.

    Args:
        size: b, bytes per parameter.
        slots: k, state tensors per parameter.
        counted: the bytes that every rank counted, with its Ψ according to the plan.
        info: the method, which declares what its ranks shard; None for dualml's own training.
        shards: components that the ranks of dualml's own training shard.
        padding: zeros appended to the Ψ parameters to make them divisible.
        low_precision_bytes: bytes of a full weight or gradient in low precision, beside float32
            weights that count as state; 0 without low precision.
        offloaded: components that are not kept on the device.

    Source: Rajbhandari et al. 2020, "ZeRO", sec. 3 and 5.
    """

    size: int
    slots: int
    counted: Sequence[DeviceMemory]
    info: MethodInfo | None
    shards: Collection[str] = ()
    padding: int = 0
    low_precision_bytes: int = 0
    offloaded: Collection[str] = ()

    def bytes_per_parameter(self, part: str) -> int:
        """Return the bytes of a component per parameter on the device, before sharding; 0 if it is
        offloaded."""
        if part in self.offloaded:
            return 0
        if part == "weights" and self.info and self.info.weight_bytes:
            return self.info.weight_bytes
        copies = self.slots + (self.info.masters if self.info else bool(self.low_precision_bytes))
        return self.size * copies if part == "state" else self.low_precision_bytes or self.size

    def shard_count(self, part: str) -> int:
        """Return the number of ranks that shard a component; 1 if each rank holds all of it."""
        shared = self.info.shards if self.info else self.shards
        return len(self.counted) if part in shared else 1

    @property
    def nbytes(self) -> float:
        """Bytes of weights, gradients and state on rank 0 by the closed form, after sharding."""
        psi = (self.counted[0].parameters or 0) + self.padding
        return sum(
            self.bytes_per_parameter(part) * psi / self.shard_count(part)
            for part in CLOSED_FORM_PARTS
        )

    @property
    def text(self) -> str:
        """The formula with its value in MiB, e.g. ``(4 + 4/2 + 8/2)Ψ = 12``; ``(Ψ + 2)`` with two
        padding zeros."""
        terms = []
        for part in CLOSED_FORM_PARTS:
            each, ranks = self.bytes_per_parameter(part), self.shard_count(part)
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
            each = self.bytes_per_parameter(part)
            psi = [(rank.parameters or 0) + self.padding for rank in self.counted]
            counts = [getattr(rank, part) for rank in self.counted]
            apart = [n - each * own for n, own in zip(counts, psi, strict=True)]
            together = [sum(counts) - each * psi[0]]
            differences[part] = max(together if self.shard_count(part) > 1 else apart, key=abs)
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
    if not settings.zero and settings.offload is None:
        return ClosedForm(size, slots, counted, info)
    units = sharding_units(run, arm)
    if units is None or settings.split is not None:
        return None
    padding = sum(unit.length - unit.size for unit in units)
    lower = (2 if size == 4 else size) * settings.zero_lower  # the reference rounds float64
    shared = CLOSED_FORM_PARTS[-settings.zero :] if settings.zero else ()
    elsewhere = settings.offload
    away = [kind for kind in KINDS if elsewhere is not None and elsewhere.is_offloaded(kind)]
    return ClosedForm(size, slots, counted, None, shared, padding, lower, away)


def sharding_units(run: RunData, arm: str) -> list[Unit] | None:
    """Return the units in which ZeRO or offloading divides the parameters of an arm's model,
    padding included; None if its model is unknown."""
    settings = run.settings[arm]
    name = settings.variant or str(run.experiment.get("model"))
    if name not in run.models:
        return None
    spec = ModelSpec.restore(dict(run.models[name]))
    return units_of(spec, settings.sharding.bucket_bytes, settings.world_size)
