"""dualml's own decoders as shapes: by name with sizes, or from an experiment file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from dualml.algorithms.model.decoder import GroupedAttention, Tied
from dualml.algorithms.model.gpt import DECODERS
from dualml.algorithms.model.layers import Embedding, Linear
from dualml.algorithms.model.spec import ModelSpec
from dualml.algorithms.model.zoo import model
from dualml.common.errors import UserError
from dualml.common.json_types import JsonObject
from dualml.common.strict_model import StrictModel, describe_validation_error
from dualml.experiment.data.text import LENGTH, WORDS
from dualml.experiment.load import load
from dualml.experiment.overrides import apply_override
from dualml.experiment.schema import Data, DecoderSizes
from dualml.planning.planner.shape import Shape

#: Default samples per update: the default of an arm.
BATCH = 64


class DecoderOverrides(StrictModel):
    """Keys of an experiment file that `--set` accepts for a model given by name."""

    data: Data = Data(name="text", words=WORDS, length=LENGTH)
    sizes: DecoderSizes = DecoderSizes()


def shape_by_name(name: str, overrides: Sequence[str] = ()) -> Shape:
    """Return the shape of ``gpt`` or ``gpt_llama``.

    Args:
        name: name of the model.
        overrides: ``sizes.width=768``, ``data.words=50257``, ``data.length=1024``.

    Raises:
        UserError: an unknown key or an invalid size.

    Example:
        >>> shape_by_name("gpt", ["sizes.width=768", "sizes.blocks=12", "sizes.heads=12",
        ...                 "data.words=50257", "data.length=1024"]).parameters
        124439808
    """
    table: dict[str, Any] = {"data": {"name": "text"}}
    for text in overrides:
        apply_override(table, text)
    try:
        given = DecoderOverrides.model_validate(table)
    except ValidationError as error:
        raise UserError(f"--set: {describe_validation_error(error, DecoderOverrides)}") from None
    data, sizes = given.data, given.sizes.explicit_values
    return shape_from_spec(model(name, words=data.words, length=data.length, sizes=sizes), BATCH)


def shape_from_experiment(lab: str, overrides: Sequence[str] = ()) -> Shape:
    """Return the shape of the decoder of an experiment's first arm that trains one, with that arm's
    batch; 64 if it is the whole training set.

    Raises:
        UserError: there is no such experiment, it is invalid, or it has no decoder.
    """
    experiment = load(lab, overrides=overrides, arms=["all"])
    for arm in experiment.arms.values():
        own = arm.model or experiment.model
        if own in DECODERS:
            data = experiment.data
            spec = model(
                own, words=data.words, length=data.length, **experiment.model_settings(arm)
            )
            return shape_from_spec(spec, arm.batch_size or BATCH)
    raise UserError(
        f"{lab}: no arm trains {' or '.join(DECODERS)}; received {experiment.model}, which has no "
        "layers that are laid out: set model, or name another experiment"
    )


def shape_from_spec(spec: ModelSpec, batch: int = 0) -> Shape:
    """Return the shape of a decoder of the model zoo.

    Raises:
        UserError: another model.
    """
    layers = dict(spec.layers)
    attention, table = layers.get("attention1"), layers.get("embedding")
    if spec.name not in DECODERS or not isinstance(attention, GroupedAttention):
        raise UserError(f"{spec.name} is none of {' and '.join(DECODERS)}; it is not laid out")
    assert isinstance(table, Embedding)
    down = layers["down1"]
    assert isinstance(down, Linear)
    gated = "swiglu1" in layers
    return Shape(
        spec.name,
        sum(isinstance(layer, GroupedAttention) for layer in layers.values()),
        table.features,
        attention.heads,
        attention.kv_heads,
        down.inputs,
        table.words,
        spec.input_shape[0],
        gated=gated,
        tied=isinstance(layers["head"], Tied),
        biased=not gated,
        learned_positions=not gated,
        dropout=bool(spec.dropout_names),
        batch=batch,
    )


def spec_from_shape(shape: Shape) -> ModelSpec:
    """Return the model of the zoo that has this shape.

    Raises:
        UserError: no model has it.
    """
    name, sizes = "gpt_llama" if shape.gated else "gpt", sizes_from_shape(shape)
    spec = model(name, words=shape.vocabulary, length=shape.sequence, sizes=sizes)
    if replace(shape, name=name) != shape_from_spec(spec, shape.batch):
        raise UserError(f"{shape.name} is none of {' and '.join(DECODERS)}: dualml cannot train it")
    return spec


def sizes_from_shape(shape: Shape) -> JsonObject:
    """Return the sizes of a shape as in an experiment file, with the dropout rate 0.1 if it has
    dropout, else 0."""
    return {
        "width": shape.hidden,
        "blocks": shape.layers,
        "heads": shape.heads,
        "inner": shape.ffn,
        "kv_heads": shape.kv_heads,
        "tied": shape.tied,
        "dropout": 0.1 * shape.dropout,
    }
