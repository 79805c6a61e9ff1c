"""A pretrained BERT from a Hugging Face folder: ``config.json`` and its weights.

No code from the folder is run and no pickle is read: only sizes and tensors are taken.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dualml.algorithms.model.bert import BertSizes, bert
from dualml.algorithms.model.spec import ModelSpec
from dualml.common.arrays import open_tensors
from dualml.common.errors import UserError
from dualml.common.files import MAX_TEXT_BYTES, read_bytes
from dualml.common.strict_model import describe_validation_error

CONFIG, TENSORS = "config.json", "model.safetensors"
#: Remedy for files that cannot be read here.
REMEDY = "save the model with save_pretrained of transformers, in float32"
FLOATS = ("F16", "F32", "F64")
#: Maximum number of mismatched tensors that an error lists.
MAX_LISTED_TENSORS = 10
Size = Annotated[int, Field(ge=1, le=2**20)]
Rate = Annotated[float, Field(ge=0, lt=1)]
Weights = dict[str, NDArray[np.float32]]


class BertConfig(BaseModel):
    """Fields of ``config.json`` that determine the numbers of a BERT; the defaults are those of
    transformers."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    model_type: Literal["bert"]
    hidden_act: Literal["gelu"] = "gelu"
    position_embedding_type: Literal["absolute"] = "absolute"
    is_decoder: Literal[False] = False
    vocab_size: Size = 30_522
    hidden_size: Size = 768
    num_hidden_layers: Annotated[int, Field(ge=1, le=1000)] = 12
    num_attention_heads: Size = 12
    intermediate_size: Size = 3072
    max_position_embeddings: Size = 512
    type_vocab_size: Size = 2
    layer_norm_eps: Annotated[float, Field(gt=0)] = 1e-12
    hidden_dropout_prob: Rate = 0.1
    attention_probs_dropout_prob: Rate = 0.1
    classifier_dropout: Rate | None = None


@dataclass(frozen=True)
class PretrainedBert:
    """A folder with a BERT, whose sizes are checked and whose tensors are not read yet.

    Raises:
        UserError: the folder, or a file in it, is missing or damaged; or it is no BERT that can be
            computed here.
    """

    folder: Path
    config: BertConfig

    @classmethod
    def open(cls, folder: Path) -> PretrainedBert:
        """Return the pretrained BERT of a folder after checking its ``config.json``; raise
        `UserError` if a file is missing or unreadable, or it is no BERT. ``model.safetensors`` is
        not opened."""
        for name in (CONFIG, TENSORS):
            require_file(folder, name)
        path = folder / CONFIG
        try:
            config = BertConfig.model_validate_json(read_bytes(path, MAX_TEXT_BYTES))
        except ValidationError as error:
            raise UserError(
                f"{path}: {describe_validation_error(error, BertConfig)}; a BERT is expected"
            ) from None
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
        if config.hidden_size % config.num_attention_heads:
            raise UserError(
                f"{path}: hidden_size = {config.hidden_size} is no multiple of "
                f"num_attention_heads = {config.num_attention_heads}"
            )
        return cls(folder, config)

    @property
    def sizes(self) -> BertSizes:
        """Sizes of the BERT that ``config.json`` describes."""
        config, rate = self.config, self.config.hidden_dropout_prob
        last = config.classifier_dropout
        return BertSizes(
            blocks=config.num_hidden_layers,
            width=config.hidden_size,
            heads=config.num_attention_heads,
            inner=config.intermediate_size,
            dropout=rate,
            head_dropout=rate if last is None else last,
            eps=config.layer_norm_eps,
        )

    def spec(self, length: int, classes: int) -> ModelSpec:
        """Return the model, without weights, for samples of ``length`` tokens.

        Raises:
            UserError: ``length`` exceeds the model's number of positions.
        """
        most = self.config.max_position_embeddings
        if length > most:
            raise UserError(
                f"data.length = {length}, but {self.folder / CONFIG} has "
                f"max_position_embeddings = {most}: lower data.length to at most {most}"
            )
        return bert(self.config.vocab_size, length, classes, self.sizes)

    @functools.cached_property
    def stored_tensors(self) -> dict[str, tuple[str, tuple[int, ...], str]]:
        """Name of each tensor in today's transformers, without ``bert.`` → its name in the file,
        shape and type, such as ``F32``.

        The first use reads the file's header, or raises `UserError`. Some files have names with
        ``bert.``, or ``gamma`` and ``beta`` of norms.
        """
        found = {}
        with open_tensors(self.folder / TENSORS, f"not readable; {REMEDY}") as file:
            for name in file.keys():  # noqa: SIM118 - not a dictionary
                own = name.removeprefix("bert.")
                own = own.replace("LayerNorm.gamma", "LayerNorm.weight")
                own = own.replace("LayerNorm.beta", "LayerNorm.bias")
                piece = file.get_slice(name)
                found[own] = name, tuple(piece.get_shape()), str(piece.get_dtype())
        return found

    def has_head(self, classes: int) -> bool:
        """Return whether the file has a classifier, weight and bias, with this number of
        classes."""
        expected = {"weight": (classes, self.config.hidden_size), "bias": (classes,)}
        found = {
            leaf: self.stored_tensors.get(f"classifier.{leaf}", ("", ()))[1] for leaf in expected
        }
        return found == expected

    def expected_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return transformers' name of each tensor (queries, keys and values apart) → shape
        according to ``config.json``, with all its positions and without a head."""
        config, modules = self.config, module_names(self.config.num_hidden_layers)
        shapes: dict[str, tuple[int, ...]] = {KIND: (config.type_vocab_size, config.hidden_size)}
        for name, shape in self.spec(config.max_position_embeddings, 1).parameters().items():
            layer, _, leaf = name.partition(".")
            for module in (parts := modules.get(layer, [])):
                shapes[f"{module}.{leaf}"] = (shape[0] // len(parts), *shape[1:])
        return shapes

    def check_tensors(self) -> None:
        """Raise `UserError` if tensors are missing, or of another shape, or of a type other than
        float16, 32 or 64; the message lists the first ten. Tensors that are not needed are
        ignored."""
        wrong = []
        for name, shape in self.expected_shapes().items():
            _, there, kind = self.stored_tensors.get(name, ("", None, ""))
            if there != shape:
                wrong.append(f"{name}: expected {shape}, found {there or 'nothing'}")
            elif kind not in FLOATS:
                wrong.append(f"{name}: expected F32, found {kind}")
        if wrong:
            more = (
                f"; and {len(wrong) - MAX_LISTED_TENSORS} more"
                if len(wrong) > MAX_LISTED_TENSORS
                else ""
            )
            raise UserError(
                f"{self.folder / TENSORS} does not fit {CONFIG}: "
                f"{'; '.join(wrong[:MAX_LISTED_TENSORS])}{more}; remedy: {REMEDY}"
            )

    def weights(self, length: int, classes: int) -> Weights:
        """Return canonical name → float32 array; of the positions only the first ``length``, and
        without the head if the file has none for this number of classes.

        Raises:
            UserError: as `check_tensors` does; the file is not readable, or ``length`` is too
                large.
        """
        self.check_tensors()
        modules = module_names(self.config.num_hidden_layers)
        if self.has_head(classes):
            modules["head"] = ["classifier"]
        weights = Weights()
        with open_tensors(self.folder / TENSORS, f"not readable; {REMEDY}") as file:

            def read(tensor: str) -> NDArray[np.float32]:
                return np.asarray(file.get_tensor(self.stored_tensors[tensor][0]), np.float32)

            weights["kind.bias"] = read(KIND)[0]
            for name in self.spec(length, classes).parameters():
                layer, _, leaf = name.partition(".")
                if layer in modules:
                    weights[name] = np.concatenate([read(f"{m}.{leaf}") for m in modules[layer]])
        weights["position.weight"] = weights["position.weight"][:length]
        return weights


#: Its first row belongs to the first of two sentences, the only one here.
KIND = "embeddings.token_type_embeddings.weight"


def module_names(blocks: int) -> dict[str, list[str]]:
    """Return the name of each layer of `bert` → modules of transformers' ``BertModel`` whose
    tensors are concatenated to that layer's, for this number of ``blocks``; without the segment
    embedding and the head."""
    modules = {
        "embedding": ["embeddings.word_embeddings"],
        "position": ["embeddings.position_embeddings"],
        "embedding_norm": ["embeddings.LayerNorm"],
        "pooler": ["pooler.dense"],
    }
    for i in range(blocks):
        block, own = f"encoder.layer.{i}", i + 1
        parts = ("query", "key", "value")
        modules |= {
            f"qkv{own}": [f"{block}.attention.self.{part}" for part in parts],
            f"out{own}": [f"{block}.attention.output.dense"],
            f"attention_norm{own}": [f"{block}.attention.output.LayerNorm"],
            f"up{own}": [f"{block}.intermediate.dense"],
            f"down{own}": [f"{block}.output.dense"],
            f"mlp_norm{own}": [f"{block}.output.LayerNorm"],
        }
    return modules


def require_file(folder: Path, name: str) -> Path:
    """Return the path of a file of the folder.

    Raises:
        UserError: the folder or the file is missing.
    """
    path = folder / name
    if not folder.is_dir():
        raise UserError(
            f"pretrained: there is no folder {folder}; name one with {CONFIG}, {TENSORS} and "
            "vocab.txt"
        )
    if not path.is_file():
        raise UserError(f"pretrained: {folder} has no {name}; {REMEDY}")
    return path
