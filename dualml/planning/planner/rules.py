"""The rules that a single layout must keep, each as a sentence with its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dualml.common.errors import UserError
from dualml.planning.planner.engine import MEGATRON, TrainingEngine
from dualml.planning.planner.layouts import DEFAULT_AXES, Layouts
from dualml.planning.planner.shape import Shape
from dualml.planning.planner.space import can_interleave


def check_layout(
    shape: Shape, axes: Mapping[str, Any], batch: int, engine: TrainingEngine, option: str
) -> None:
    """Check that a layout can train a model.

    Args:
        axes: all axes of the layout, see `axes.complete_axes`.
        batch: sequences per update.
        option: name of the option that the error mentions.

    Raises:
        UserError: the layout breaks rules; the message has one sentence for each.
    """
    broken = list(broken_rules(shape, axes, batch, engine))
    if broken:
        raise UserError(f"{option}: {'; '.join(broken)}")


def broken_rules(
    shape: Shape, axes: Mapping[str, Any], batch: int, engine: TrainingEngine = MEGATRON
) -> Iterator[str]:
    """Yield a sentence for each rule that a layout breaks, with the numbers and what would keep it;
    see `space.enumerate_layouts` for the rules of the search."""
    yield from _tensor_rules(shape, axes)
    cp = axes["cp"]
    if cp > 1 and shape.sequence % (2 * cp):
        yield (
            f"cp {cp}: 2 · {cp} = {2 * cp} does not divide the sequence of {shape.sequence:,} "
            "tokens, of which each device takes two parts; choose a smaller cp or another "
            "--sequence"
        )
    yield from _batch_rules(axes, batch)
    yield from _pipeline_rules(shape, axes, batch)
    yield from _sharding_rules(shape, axes)
    again = axes["recompute"]
    if again not in engine.recomputed:
        yield (
            f"{engine.name} recomputes {', '.join(engine.recomputed)}, not {again}; choose one of "
            "them, or another --engine"
        )
        return
    if any(_batch_rules(axes, batch)):
        return
    if not engine.can_train(Layouts.from_axes(batch, **_select_axes(axes)), shape)[0]:
        yield (
            f"{engine.name} does not train this combination of axes; take --engine {MEGATRON.name}"
        )


def _select_axes(axes: Mapping[str, Any]) -> Any:
    """Return those of the entries that are axes, as arguments of `Layouts.from_axes`."""
    return {name: value for name, value in axes.items() if name in DEFAULT_AXES}


def _tensor_rules(shape: Shape, axes: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each broken rule of tensor and sequence parallelism."""
    tp, kv = axes["tp"], shape.kv_heads
    for size, name in ((shape.heads, "attention heads"), (shape.ffn, "feed-forward columns")):
        if size % tp:
            near = [k for k in range(1, 129) if not (shape.heads % k or shape.ffn % k)]
            yield (
                f"tp {tp} does not divide {size:,} {name}; tp may be "
                f"{', '.join(map(str, near[:12]))}"
            )
            break
    else:
        if kv % tp and tp % kv:
            yield (
                f"tp {tp} neither divides {kv} heads of keys and values nor is divided by them; "
                "choose a divisor or a multiple"
            )
    if axes["sp"] and tp == 1:
        yield "sp 1 shares the sequence among tensor-parallel devices, but tp is 1; leave out sp"


def _batch_rules(axes: Mapping[str, Any], batch: int) -> Iterator[str]:
    """Yield a sentence if dp · micro-batch does not divide the batch."""
    dp, micro = axes["dp"], axes["micro"]
    if batch % (dp * micro):
        lower = batch // (dp * micro) * dp * micro
        near = [f"{n:,}" for n in (lower, lower + dp * micro) if n]
        yield (
            f"dp {dp} · micro {micro} = {dp * micro:,} does not divide a batch of {batch:,} "
            f"sequences; choose --batch {' or '.join(near)}, or another dp or micro"
        )


def _pipeline_rules(shape: Shape, axes: Mapping[str, Any], batch: int) -> Iterator[str]:
    """Yield a sentence for each broken rule of pipeline parallelism."""
    pp, chunks, layers = axes["pp"], axes["chunks"], shape.layers
    uneven = axes.get("first_layers") or axes.get("last_layers")
    if pp * chunks > layers:
        each = f"pp {pp}" if chunks == 1 else f"pp {pp} · chunks {chunks} = {pp * chunks}"
        yield f"{each} stages need as many layers, and the model has {layers}; choose fewer stages"
    elif not uneven and not can_interleave(layers, pp, chunks):
        yield (
            f"pp {pp} · chunks {chunks} = {pp * chunks} does not divide {layers} layers, nor the "
            "layers with one or two for the embedding and the output; choose other chunks, or give "
            "first_layers and last_layers"
        )
    if chunks > 1 and pp == 1:
        yield f"chunks {chunks} needs a pipeline, but pp is 1; leave out chunks"
    number, rest = divmod(batch, axes["dp"] * axes["micro"])
    if chunks > 1 and pp > 1 and not rest and number % pp:
        yield (
            f"an interleaved schedule needs micro-batches in multiples of pp {pp}, and there are "
            f"{number}; choose a --batch that is a multiple of {axes['dp'] * axes['micro'] * pp:,}"
        )


def _sharding_rules(shape: Shape, axes: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each broken rule of ZeRO, hybrid sharding, and expert parallelism."""
    ranks = axes["dp"] * axes["cp"]
    if axes["zero"] and ranks == 1:
        yield (
            f"ZeRO-{axes['zero']} shards over dp · cp devices, of which there is 1; leave out zero"
        )
    replicate = axes.get("replicate", 1)
    if ranks % replicate:
        yield f"replicate {replicate} does not divide dp · cp = {ranks}; choose a divisor"
    elif replicate > 1 and not axes["zero"]:
        yield f"replicate {replicate} makes groups of shards, but zero is 0; give zero=1, 2 or 3"
    ep, experts = axes.get("ep", 1), shape.experts
    if ep > 1 and not experts:
        yield f"ep {ep} distributes experts, and {shape.name} has none; leave out ep"
    elif ep > 1 and experts % ep:
        yield f"ep {ep} does not divide {experts} experts; choose a divisor"
    held = ep * (axes.get("etp") or axes["tp"])
    if experts and (ranks * axes["tp"]) % held:
        yield (
            f"ep · etp = {held} does not divide dp · cp · tp = {ranks * axes['tp']}; choose a "
            "smaller ep"
        )
