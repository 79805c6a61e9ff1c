"""The settings of models in an experiment file, and which models they are of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from dualml.errors import UserError
from dualml.model.gpt import DECODERS
from dualml.model.rnn import RECURRENT
from dualml.model.zoo import model as zoo_model
from dualml.strict import Strict

if TYPE_CHECKING:
    from dualml.experiment.arm import Arm

Size = Annotated[int, Field(ge=1, le=2**20)]
Layers = Annotated[int, Field(ge=1, le=1000)]
Rate = Annotated[float, Field(ge=0, lt=1, strict=False)]


class DecoderSizes(Strict):
    """Sizes of the models `gpt` and `gpt_llama`, see `dualml.model.gpt.Sizes`; what is left out is
    the model's own."""

    width: Size | None = None
    blocks: Layers | None = None
    heads: Size | None = None
    kv_heads: Size | None = None
    inner: Size | None = None
    dropout: Rate | None = None
    tied: bool | None = None

    @property
    def given(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)


class Recurrent(Strict):
    """Settings of the models `rnn_lm` and `rnn_lm_dropout`, see `dualml.model.rnn.Settings`; what
    is left out is the model's own."""

    rnn_type: Literal["lstm", "gru", "tanh", "relu"] | None = None
    layers: Layers | None = None
    width: Size | None = None
    hidden: Size | None = None
    dropout: Rate | None = None
    tied: bool | None = None
    init_range: Annotated[float, Field(ge=0, le=100, strict=False)] | None = None
    stateful: bool | None = None

    @property
    def given(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)

    @property
    def words(self) -> list[str]:
        """A word for each setting that is given: ``gru``, ``layers2``, ``tied``, ``no_tied``."""
        found = []
        for key, value in self.given.items():
            if isinstance(value, bool):
                found.append(key if value else f"no_{key}")
            else:
                found.append(value if isinstance(value, str) else f"{key}{value}")
        return found


def check_models(
    own: str, arms: Mapping[str, Arm], sizes: DecoderSizes, recurrent: Recurrent
) -> None:
    """Raises `UserError` for settings that no model of the experiment has, or cannot have.

    Args:
        own: the experiment's model.
    """
    models = [own, *(arm.model for arm in arms.values())]
    if sizes.given and not set(models) & set(DECODERS):
        raise UserError(
            f"sizes are of the models {' and '.join(DECODERS)}; {own!r} has its own: leave them out"
        )
    if recurrent.given and not set(models) & set(RECURRENT):
        raise UserError(
            f"recurrent has settings of the models {' and '.join(RECURRENT)}; received {own!r}: "
            "leave them out"
        )
    for name in (known for known in (*DECODERS, *RECURRENT) if known in models):
        key, table = ("sizes", sizes) if name in DECODERS else ("recurrent", recurrent)
        settings: dict[str, Any] = {key: table.given}
        zoo_model(name, **settings)
    for name, arm in arms.items():
        if arm.recurrent.given:
            try:
                zoo_model(arm.model, recurrent={**recurrent.given, **arm.recurrent.given})
            except UserError as error:
                raise UserError(f"arms.{name}: {error}") from None
