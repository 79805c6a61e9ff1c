"""The search space of layouts: which choices are tried, and every layout that they allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dualml.common.errors import UserError
from dualml.planning.planner.layouts import RECOMPUTATIONS, RECOMPUTED, Ints, Layouts
from dualml.planning.planner.shape import Shape

#: Maximum number of layouts in one search.
MAX_LAYOUTS = 1_000_000
#: Ends of a model, the embedding and the output layer, that may stand in for a layer of an
#: interleaved pipeline: the 126 layers of Llama 3 405B fill 128 stages (Megatron-LM:
#: account_for_embedding_in_pipeline_split and account_for_loss_in_pipeline_split).
ENDS = 2
#: Columns of a search that neither ZeRO nor recomputation change.
COLUMNS = ("dp", "pp", "tp", "cp", "sp", "micro", "chunks", "ep", "etp")


@dataclass(frozen=True)
class SearchSpace:
    """The search space of layouts.

    Args:
        tensor: largest tp.
        context: largest cp.
        chunks: largest number of stages on a device.
        zero, recompute: allowed values.
        sequence: allowed values of sp where tp > 1.
        experts: largest ep of a model with experts.
    """

    tensor: int = 8
    context: int = 1
    chunks: int = 1
    zero: tuple[int, ...] = (0, 1, 2, 3)
    recompute: tuple[str, ...] = RECOMPUTED
    sequence: tuple[int, ...] = (0, 1)
    experts: int = 64


def can_interleave(layers: int, pp: int, chunks: int) -> bool:
    """Return whether layers can be laid out on ``chunks`` stages of each of ``pp`` devices: always
    with one, else if every stage has the same number of layers, of which the embedding and the
    output layer may stand in for one each (one layer less in the first and in the last stage)."""
    return chunks == 1 or (-layers) % (pp * chunks) <= ENDS


def divisors(n: int) -> list[int]:
    """Return the divisors of n in ascending order; n up to 10¹²."""
    small = [k for k in range(1, int(n**0.5) + 1) if n % k == 0]
    return small + [n // k for k in reversed(small) if k * k != n]


def enumerate_layouts(shape: Shape, devices: int, batch: int, choices: SearchSpace) -> Layouts:
    """Return every layout of exactly ``devices`` devices that splits everything but the layers
    evenly.

    tp divides the number of heads and the feed-forward width, and divides the number of key-value
    heads or is a multiple of it, so that devices hold copies of them; 2cp divides the sequence; pp
    is at most the number of layers (stages may differ by one layer); dp · micro-batch divides the
    batch; with the interleaved schedule pp divides the micro-batches, and `can_interleave` holds.
    Whole experts are distributed over ep devices, which divide their number and dp · cp · tp, or
    stay where they are, and tp devices share each.

    Raises:
        UserError: there is no layout, with the reason, or there are more than a million.
    """
    rows: list[Ints] = []
    count = 0
    for meshes in _meshes(shape, devices, batch, choices):
        block = _micro_batches(meshes, shape, batch, choices)
        count += len(block) * len(choices.zero) * len(choices.recompute)
        if count > MAX_LAYOUTS:
            raise UserError(
                f"more than {MAX_LAYOUTS:,} layouts of {devices:,} devices and a batch of "
                f"{batch:,}; "
                "vary less: --tensor, --zero, --recompute, --interleave"
            )
        rows.append(block)
    table = np.concatenate(rows) if rows else np.empty((0, len(COLUMNS)), np.int64)
    if not len(table):
        raise UserError(_no_layout_reason(shape, devices, batch))
    recompute = [RECOMPUTATIONS.index(name) for name in choices.recompute]
    pairs = [(zero, again) for zero in choices.zero for again in recompute]
    of_pairs = np.array(pairs, np.int64)
    each = {
        name: np.repeat(column, len(pairs)) for name, column in zip(COLUMNS, table.T, strict=True)
    }
    zero, again = np.tile(of_pairs, (len(table), 1)).T
    layouts = Layouts(batch=np.full_like(zero, batch), zero=zero, recompute=again, **each)
    # Over one device there is nothing to shard.
    return layouts.select_rows((layouts.zero == min(choices.zero)) | (layouts.zero_devices > 1))


def _meshes(
    shape: Shape, devices: int, batch: int, choices: SearchSpace
) -> Sequence[tuple[int, int, int, int]]:
    """Return the allowed (dp, pp, tp, cp) whose product is the number of devices: see
    `enumerate_layouts`."""
    meshes = []
    for tp in divisors(devices):
        cut = any(size % tp for size in (shape.heads, shape.ffn))
        if tp > choices.tensor or cut or (shape.kv_heads % tp and tp % shape.kv_heads):
            continue
        for cp in divisors(devices // tp):
            if cp > choices.context or shape.sequence % (2 * cp if cp > 1 else 1):
                continue
            for pp in divisors(devices // (tp * cp)):
                dp = devices // (tp * cp * pp)
                if pp <= shape.layers and batch % dp == 0:
                    meshes.append((dp, pp, tp, cp))
    return meshes


def _micro_batches(
    mesh: tuple[int, int, int, int], shape: Shape, batch: int, choices: SearchSpace
) -> Ints:
    """Return a table with the `COLUMNS` of a mesh (dp, pp, tp, cp): a row for each allowed sp,
    micro-batch, interleaving and ep."""
    dp, pp, tp, cp = mesh
    rows = []
    experts = [(1, tp)]
    if shape.experts:
        most = min(choices.experts, shape.experts)
        groups = [ep for ep in divisors(shape.experts) if 1 < ep <= most]
        experts += [(ep, 1) for ep in groups if dp * cp * tp % ep == 0]
    for micro in divisors(batch // dp):
        m = batch // (dp * micro)
        for v in range(1, choices.chunks + 1 if pp > 1 else 2):
            if v > 1 and (m % pp or not can_interleave(shape.layers, pp, v)):
                continue
            sequence = choices.sequence if tp > 1 else (0,)
            rows += [(*mesh, sp, micro, v, *of) for sp in sequence for of in experts]
    return np.array(rows, np.int64)


def _no_layout_reason(shape: Shape, devices: int, batch: int) -> str:
    """Return the error message that no layout exists for these devices and this batch; checks
    nothing."""
    return (
        f"no mesh of {devices:,} devices divides {shape.heads} heads, {shape.kv_heads} of keys and "
        f"values, {shape.layers} layers and a batch of {batch:,} sequences; choose a batch that is "
        f"a multiple of {devices:,}, or another number of devices"
    )
