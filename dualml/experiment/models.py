"""Model settings of an experiment file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dualml.common.json_types import JsonObject
from dualml.common.strict_model import StrictModel

Size = Annotated[int, Field(ge=1, le=2**20)]
Layers = Annotated[int, Field(ge=1, le=1000)]
Rate = Annotated[float, Field(ge=0, lt=1, strict=False)]


class DecoderSizes(StrictModel):
    """Sizes of the models `gpt` and `gpt_llama`, see `dualml.algorithms.model.gpt.GPTSizes`, and
    the ``width`` of residual networks, see `dualml.algorithms.model.resnet`; None means the model's
    default."""

    width: Size | None = None
    blocks: Layers | None = None
    heads: Size | None = None
    kv_heads: Size | None = None
    inner: Size | None = None
    dropout: Rate | None = None
    tied: bool | None = None

    @property
    def explicit_values(self) -> JsonObject:
        """Name → value of the sizes that are not None."""
        return self.model_dump(exclude_none=True)


class RecurrentSettings(StrictModel):
    """Settings of the models `rnn_lm` and `rnn_lm_dropout`, see
    `dualml.algorithms.model.rnn.RNNSettings`; None means the model's default."""

    rnn_type: Literal["lstm", "gru", "tanh", "relu"] | None = None
    layers: Layers | None = None
    width: Size | None = None
    hidden: Size | None = None
    dropout: Rate | None = None
    tied: bool | None = None
    init_range: Annotated[float, Field(ge=0, le=100, strict=False)] | None = None
    stateful: bool | None = None

    @property
    def explicit_values(self) -> JsonObject:
        """Name → value of the settings that are not None."""
        return self.model_dump(exclude_none=True)

    @property
    def tags(self) -> list[str]:
        """A tag for each setting that was set: ``gru``, ``layers2``, ``tied``, ``no_tied``."""
        found = []
        for key, value in self.explicit_values.items():
            if isinstance(value, bool):
                found.append(key if value else f"no_{key}")
            else:
                found.append(value if isinstance(value, str) else f"{key}{value}")
        return found
