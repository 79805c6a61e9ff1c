"""Models by name or from a file: TOML with the same keys, or a Hugging Face ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError

from dualml.common.errors import UserError, did_you_mean, escape_unprintable
from dualml.common.files import read_toml
from dualml.common.parse import from_toml
from dualml.common.strict_model import StrictModel, describe_validation_error
from dualml.planning.planner.configs import entry_from_config
from dualml.planning.planner.shape import Shape


class ModelEntry(StrictModel):
    """A model as described in a file; omitted keys have GPT's values: f = 4h, as many key-value
    heads as heads."""

    layers: int
    hidden: int
    heads: int
    vocabulary: int
    sequence: int
    kv_heads: int | None = None
    ffn: int | None = None
    gated: bool = False
    tied: bool = False
    head_width: int = 0
    biased: bool = True
    learned_positions: bool = True
    dropout: bool = True
    batch: int = 0
    parallel: bool = False
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    expert_interval: int = 1
    capacity: float = 0.0
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    rope_width: int = 0
    value_width: int = 0
    biases: Sequence[str] = ()
    norms: int = 2
    embedding_norm: bool = False
    qk_norm: int = 0
    positions: int = 0
    other_parameters: int = 0

    def shape(self, name: str) -> Shape:
        """Return the shape of the model under this ``name``, with defaults in place of omitted
        keys."""
        given = self.model_dump()
        given["kv_heads"] = self.heads if self.kv_heads is None else self.kv_heads
        given["ffn"] = 4 * self.hidden if self.ffn is None else self.ffn
        given["biases"] = tuple(self.biases)
        return Shape(name, **given)


@cache
def known_models() -> Mapping[str, tuple[Shape, str, float]]:
    """Return name → shape, source, published number of parameters; dualml's own decoders are not
    among them."""
    table = from_toml((files("dualml.planning.planner") / "models.toml").read_text("utf-8"))
    shapes = {}
    for name, entry in table["model"].items():
        given = {**table["family"][entry["family"]], **entry}
        source, published = given.pop("source"), float(given.pop("parameters"))
        del given["family"]
        shapes[name] = (ModelEntry(**given).shape(name), str(source), published)
    return shapes


def find_model(text: str, sequence: int | None = None, overrides: Sequence[str] = ()) -> Shape:
    """Return the shape of a model by its name or the path of its file; of an experiment, by name or
    path, the shape of the first decoder that it trains.

    Args:
        text: name or path.
        sequence: tokens per sample instead of the model's own.
        overrides: ``KEY=VALUE`` for dualml's own models, see `planner.zoo`.

    Raises:
        UserError: an unknown name, a file of neither kind, or invalid sizes.
    """
    from dualml.algorithms.model.gpt import DECODERS
    from dualml.experiment.find import experiment_files
    from dualml.planning.planner import zoo

    if text in DECODERS:
        shape = zoo.shape_by_name(text, overrides)
    elif text in experiment_files() or is_experiment(text):
        shape = zoo.shape_from_experiment(text, overrides)
    elif overrides:
        raise UserError(
            f"--set is for {', '.join(DECODERS)} and experiments; {escape_unprintable(text)} has "
            "its own sizes"
        )
    elif text in known_models():
        shape = known_models()[text][0]
    elif "/" in text or text.endswith((".toml", ".json")):
        shape = _shape_from_file(Path(text), sequence)
    else:
        raise UserError(
            f"unknown model {text!r}{did_you_mean(text, [*known_models(), *DECODERS])}; or name a "
            "file: a TOML "
            "file, or a config.json of Hugging Face's"
        )
    return shape if sequence is None else replace(shape, sequence=sequence)


def is_experiment(text: str) -> bool:
    """Return whether the text is the path of an experiment file, i.e. a TOML file with arms; False
    for a file that cannot be read."""
    path = Path(text)
    if path.suffix != ".toml" or not path.is_file():
        return False
    try:
        return "arms" in read_toml(path)
    except (OSError, ValueError):  # reported when the model is read
        return False


def _shape_from_file(path: Path, sequence: int | None) -> Shape:
    """Return the model shape that a TOML file or a Hugging Face ``config.json`` describes. Raise
    `UserError` for a missing or invalid file."""
    if not path.exists():
        raise UserError(
            f"{escape_unprintable(str(path))}: no such file; name a model or a TOML or JSON file"
        )
    if path.suffix == ".json":
        return _shape_from_config(path, sequence)
    try:
        return ModelEntry(**read_toml(path)).shape(path.stem)
    except ValidationError as error:
        raise UserError(f"{path}: {describe_validation_error(error, ModelEntry)}") from None
    except TypeError:  # a key that is not an identifier
        raise UserError(f"{path}: keys are {', '.join(ModelEntry.model_fields)}") from None


def _shape_from_config(path: Path, sequence: int | None) -> Shape:
    """Read a Hugging Face config; raise `UserError` for one that lacks a key or is no decoder."""
    given = entry_from_config(path, sequence)
    assumed = given.pop("assumed", "")
    try:
        shape = ModelEntry(**given).shape(
            path.parent.name if path.name == "config.json" else path.stem
        )
        return replace(shape, assumed=assumed)
    except ValidationError as error:
        raise UserError(f"{path}: {describe_validation_error(error, ModelEntry)}") from None
