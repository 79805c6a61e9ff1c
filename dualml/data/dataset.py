"""A dataset in memory, the same arrays for every backend, and the one way to normalise them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dualml.data.registry import Constant
from dualml.data.wordpiece import WordPiece
from dualml.errors import UserError

Array = NDArray[Any]
Source = Literal["env", "cache", "download", "embedded", "generated", "file"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels, a text in windows, or sentences and labels, split into training and test
    samples, sentences also into validation samples.

    Attributes:
        name: of the dataset these arrays are; with ``notice``, not the one that was asked for.
        source: where they came from.
        notice: language (``en``, ``zh``) → why another dataset stands in, or None.
        train_x, test_x: uint8 (N, 28, 28), 0 is background, or (N, 3, 32, 32) in colour; of a text
            int32 (N, T) tokens, of sentences those that are shorter than T with zeros behind.
        train_y, test_y: int64 (N,), 0 ≤ label < ``len(classes)``; of a text int64 (N, T), the token
            that follows each.
        sha256: `fingerprint` of the four arrays; of labelled sentences of all six, the validation
            samples in the middle.
        mean, std: constants for `normalised`, of colour images one for each channel; 0 and 1 of a
            text, which is not normalised.
        classes: name of label 0, 1, …; of a text the vocabulary, by token.
        kind: ``images``, ``text`` or ``labelled`` (sentences).
        vocabulary: of labelled sentences, by token.
        validation_x, validation_y: of labelled sentences, those that choose the weights to keep.
        pieces: what made the tokens of labelled sentences for a pretrained model; else None.
        cut: labelled sentences that were too long and lost their end.
        path: of a text that was read from a file the user named; else None.
    """

    name: str
    source: Source
    notice: Mapping[str, str] | None
    train_x: Array
    train_y: Array
    test_x: Array
    test_y: Array
    sha256: str
    mean: Constant
    std: Constant
    classes: tuple[str, ...]
    kind: Literal["images", "text", "labelled"] = "images"
    path: str | None = None
    vocabulary: tuple[str, ...] = ()
    pieces: WordPiece | None = None
    cut: int = 0
    validation_x: Array | None = None
    validation_y: Array | None = None

    def check_same(self, planned: Mapping[str, Any]) -> None:
        """Raises `UserError` unless these are the arrays that a plan's data describe."""
        own = self.pieces.sha256 if self.pieces else ""
        if self.pieces and own != (wanted := planned.get("vocabulary_sha256", "")):
            raise UserError(
                f"the vocabulary in {self.pieces.folder} is not the one of the plan: SHA-256 "
                f"{own[:12]} instead of {wanted[:12]}; put the old one back, or begin a new run"
            )
        if self.sha256 != planned["sha256"]:
            raise UserError(
                f"dataset {self.name} is not the one of the plan: SHA-256 {self.sha256[:12]} "
                f"instead of {planned['sha256'][:12]}"
            )


def channels_of(images: Array) -> Array:
    """Grey images (N, H, W) as (N, 1, H, W); colour images (N, C, H, W) as they are."""
    return images[:, None] if images.ndim == 3 else images


def normalised(images: Array, mean: Constant, std: Constant) -> NDArray[np.float32]:
    """``images``, uint8 (N, H, W) → float32 (N, 1, H, W), or (N, C, H, W) as they are:
    (x/255 − ``mean``)/``std``, with one number for all or one for each channel.

    Every operation is in float32, in this order: the same bits as torchvision's ``ToTensor`` and
    ``Normalize``. Computing in float64 and rounding once would differ in the last bit.
    """
    x = channels_of(images.astype(np.float32))
    x /= np.float32(255)
    x -= np.asarray(mean, np.float32).reshape(-1, 1, 1)
    x /= np.asarray(std, np.float32).reshape(-1, 1, 1)
    return x
