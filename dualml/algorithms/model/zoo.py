"""The model zoo."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dualml.algorithms.model.base import Layer, Shape
from dualml.algorithms.model.bert import bert
from dualml.algorithms.model.gpt import DECODERS, gpt, gpt_llama
from dualml.algorithms.model.layers import (
    GELU,
    Attention,
    Branch,
    Conv2d,
    Embedding,
    Flatten,
    LayerNorm,
    Linear,
    MaxPool2d,
    MeanPool,
    Merge,
    Position,
    ReLU,
    Rows,
    Tanh,
)
from dualml.algorithms.model.resnet import RESNETS
from dualml.algorithms.model.rnn import RECURRENT, rnn_lm, rnn_lm_dropout
from dualml.algorithms.model.spec import ModelSpec
from dualml.common.errors import UserError, did_you_mean
from dualml.common.json_types import JsonMapping

#: Shape of a grey image of handwriting.
GREY = (1, 28, 28)


def lenet(shape: Shape = GREY, classes: int = 10) -> ModelSpec:
    """Return the course's LeNet; for 28×28 grey images and ten classes it has 51,902 parameters.

    Source: LeCun et al. 1998, "Gradient-based learning applied to document recognition", sec. II.B,
    with ReLU, max pooling and one hidden linear layer instead of two.
    """
    flat = 16 * math.prod((side // 2 - 4) // 2 for side in shape[1:])
    return ModelSpec(
        "lenet",
        shape,
        (
            ("conv1", Conv2d(shape[0], 6, 5, padding=2)),
            ("relu1", ReLU()),
            ("pool1", MaxPool2d(2)),
            ("conv2", Conv2d(6, 16, 5)),
            ("relu2", ReLU()),
            ("pool2", MaxPool2d(2)),
            ("flatten", Flatten()),
            ("fc1", Linear(flat, 120)),
            ("relu3", ReLU()),
            ("fc2", Linear(120, classes)),
        ),
    )


def _tanh_mlp(name: str, shape: Shape, classes: int, *widths: int) -> ModelSpec:
    """Return an MLP with hidden layers of these ``widths``, each followed by tanh; a sample of
    ``shape`` is flattened first."""
    layers: list[tuple[str, Layer]] = [("flatten", Flatten())]
    sizes = (math.prod(shape), *widths)
    for number, (before, after) in enumerate(itertools.pairwise(sizes), start=1):
        layers += [(f"fc{number}", Linear(before, after)), (f"tanh{number}", Tanh())]
    layers.append((f"fc{len(sizes)}", Linear(sizes[-1], classes)))
    return ModelSpec(name, shape, tuple(layers))


def mlp(shape: Shape = GREY, classes: int = 10) -> ModelSpec:
    """Return an MLP of two hidden layers of 256 and 128 with tanh; for 28×28 grey images and ten
    classes 784 → 256 → 128 → 10."""
    return _tanh_mlp("mlp", shape, classes, 256, 128)


def wide_mlp(shape: Shape = GREY, classes: int = 10) -> ModelSpec:
    """Return an MLP of two wide hidden layers with tanh; for 28×28 grey images and ten classes 784
    → 1024 → 1024 → 10, whose 1,863,690 parameters are enough to make sharding worthwhile."""
    return _tanh_mlp("wide_mlp", shape, classes, 1024, 1024)


def deep_mlp(shape: Shape = GREY, classes: int = 10) -> ModelSpec:
    """Return an MLP of six hidden layers of 512 with tanh: 1,720,330 parameters for 28×28 grey
    images and ten classes.

    If it is split at ``fc4``, both halves compute equally much: the first half needs no gradient of
    its input of 784 pixels, which makes up for its wider first layer.
    """
    return _tanh_mlp("deep_mlp", shape, classes, *[512] * 6)


def softmax(shape: Shape = GREY, classes: int = 10) -> ModelSpec:
    """Return softmax regression: one linear layer, a convex problem."""
    layers = (("flatten", Flatten()), ("fc", Linear(math.prod(shape), classes)))
    return ModelSpec("softmax", shape, layers)


def vit(shape: Shape = GREY, classes: int = 10) -> ModelSpec:
    """Return a transformer that reads a grey image, (1, H, W), as its rows: one block of four heads
    of width 16.

    Source: Dosovitskiy et al. 2021, "An Image Is Worth 16x16 Words", eq. 1-4, with rows in place of
    patches, ReLU, and the mean of all positions in place of the class token.
    """
    return ModelSpec(
        "vit",
        shape,
        (
            ("rows", Rows()),
            ("embed", Linear(shape[2], 64)),
            ("position", Position(shape[1], 64)),
            ("branch1", Branch()),
            ("ln1", LayerNorm(64)),
            ("qkv", Linear(64, 192)),
            ("attention", Attention(4)),
            ("proj", Linear(64, 64)),
            ("merge1", Merge()),
            ("branch2", Branch()),
            ("ln2", LayerNorm(64)),
            ("up", Linear(64, 128)),
            ("relu", ReLU()),
            ("down", Linear(128, 64)),
            ("merge2", Merge()),
            ("ln3", LayerNorm(64)),
            ("pool", MeanPool()),
            ("head", Linear(64, classes)),
        ),
    )


def text_classifier(words: int = 2000, length: int = 32, classes: int = 6) -> ModelSpec:
    """Return a transformer that classifies sentences: two blocks of four heads, width 64.

    Source: Vaswani et al. 2017, "Attention Is All You Need", sec. 3.1, with the norm before each
    part (Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture") and the mean
    of all words in place of a decoder.
    """
    layers: list[tuple[str, Layer]] = [
        ("embedding", Embedding(words, 64)),
        ("position", Position(length, 64)),
    ]
    for i in (1, 2):
        layers += [
            (f"attention_branch{i}", Branch()),
            (f"attention_norm{i}", LayerNorm(64)),
            (f"qkv{i}", Linear(64, 192)),
            (f"attention{i}", Attention(4, masked=True)),
            (f"out{i}", Linear(64, 64)),
            (f"attention_merge{i}", Merge()),
            (f"mlp_branch{i}", Branch()),
            (f"mlp_norm{i}", LayerNorm(64)),
            (f"up{i}", Linear(64, 256)),
            (f"gelu{i}", GELU()),
            (f"down{i}", Linear(256, 64)),
            (f"mlp_merge{i}", Merge()),
        ]
    layers += [
        ("norm", LayerNorm(64)),
        ("pool", MeanPool(masked=True)),
        ("head", Linear(64, classes)),
    ]
    return ModelSpec("text_classifier", (length,), tuple(layers))


#: Image models, made from an image's shape and the number of classes.
ZOO: dict[str, Callable[..., ModelSpec]] = {
    make.__name__: make for make in (lenet, mlp, softmax, wide_mlp, deep_mlp, vit)
}
#: Language models, made from the number of words and the tokens of a sample.
TEXT_ZOO: dict[str, Callable[..., ModelSpec]] = {
    make.__name__: make for make in (rnn_lm, rnn_lm_dropout, gpt, gpt_llama)
}
#: Sentence classifiers, made from the words, the tokens of a sample and the number of classes.
CLASSIFIERS: dict[str, Callable[..., ModelSpec]] = {
    make.__name__: make for make in (text_classifier, bert)
}


def model(
    name: str,
    words: int | None = None,
    length: int | None = None,
    classes: int | None = None,
    sizes: JsonMapping | None = None,
    recurrent: JsonMapping | None = None,
    shape: Shape | None = None,
) -> ModelSpec:
    """Return a model of the zoo by name, without weights; an argument that is None has the model's
    default.

    Args:
        name: ``lenet``, ``mlp``, …
        words, length: vocabulary size and tokens of a sample; only for a text model.
        classes: number of classes, for a model that classifies sentences or images.
        sizes: for a decoder, sizes that differ from its defaults: fields of
            `dualml.algorithms.model.gpt.GPTSizes`; for a residual network its ``width``.
        recurrent: for a recurrent model, settings that differ from its defaults: fields of
            `dualml.algorithms.model.rnn.RNNSettings`.
        shape: shape of an image, (C, H, W); for an image model.

    Raises:
        UserError: unknown name, or ``sizes``, ``recurrent`` or a text's size for a model that has
            none.
        TypeError: any other argument that the model does not take, or an unknown field.
    """
    options = {"words": words, "length": length, "classes": classes, "shape": shape}
    given: dict[str, Any] = {k: v for k, v in options.items() if v is not None}
    if name not in model_names():
        raise UserError(f"unknown model {name!r}{did_you_mean(name, model_names())}")
    if recurrent:
        if sizes:
            raise UserError(
                f"sizes are of {' and '.join(DECODERS)}, recurrent of {' and '.join(RECURRENT)}; "
                f"model {name!r} received both"
            )
        if name not in RECURRENT:
            raise UserError(f"recurrent is of {' and '.join(RECURRENT)}; received model {name!r}")
        return rnn_lm(**given, settings=replace(RECURRENT[name], **recurrent), name=name)
    if name in RESNETS:
        reject_text_sizes(name, given)
        if set(sizes or {}) - {"width"}:
            raise UserError(
                f"of sizes, model {name!r} has width alone; received {dict(sizes or {})}"
            )
        return RESNETS[name](**given, **(sizes or {}))
    if sizes:
        if name not in DECODERS:
            raise UserError(f"sizes are of {' and '.join(DECODERS)}; model {name!r} has its own")
        make, own = DECODERS[name]
        return make(**given, sizes=replace(own, **sizes))
    if name in CLASSIFIERS:
        return CLASSIFIERS[name](**given)
    if name in TEXT_ZOO:
        return TEXT_ZOO[name](**given)
    reject_text_sizes(name, given)
    return ZOO[name](**given)


def model_names() -> list[str]:
    """Return the names of all models of the zoo: of images, residual networks, language models,
    sentence classifiers."""
    return [*ZOO, *RESNETS, *TEXT_ZOO, *CLASSIFIERS]


def reject_text_sizes(name: str, given: Mapping[str, Any]) -> None:
    """Raise `UserError` if ``given`` has the sizes ``words`` or ``length`` of a text: model
    ``name`` takes images."""
    if text := [key for key in given if key in ("words", "length")]:
        raise UserError(f"model {name!r} takes images; {' and '.join(text)} are of text")
