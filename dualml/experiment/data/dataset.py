"""A dataset in memory, identical for every backend, and its normalisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.experiment.data.registry import Constant
from dualml.experiment.data.wordpiece import WordPiece

Array = NDArray[Any]
Source = Literal["env", "cache", "download", "embedded", "generated", "file"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels, a text in windows, or labelled sentences, split into training and test
    samples; labelled sentences also have validation samples.

    Attributes:
        name: name of the dataset that the arrays hold; with ``notice``, not the one requested.
        source: where the arrays came from.
        notice: language (``en``, ``zh``) → why another dataset stands in, or None.
        train_x, test_x: images uint8 (N, 28, 28), 0 is background, or (N, 3, 32, 32) in colour;
            tokens int32 (N, T) of a text; labelled sentences are padded with zeros to length T.
        train_y, test_y: labels int64 (N,), 0 ≤ label < ``len(classes)``; for a text the next token
            of each position, int64 (N, T).
        sha256: `fingerprint` of the four arrays; of all six for labelled sentences, with the
            validation samples in the middle.
        mean, std: constants for `normalised`, one per channel for colour images; 0 and 1 for a
            text, which is not normalised.
        classes: name of label 0, 1, …; for a text the vocabulary, by token.
        kind: ``images``, ``text`` or ``labelled`` (sentences).
        vocabulary: words of labelled sentences, by token.
        validation_x, validation_y: labelled sentences by which the weights to keep are chosen; else
            None.
        pieces: tokenizer of a pretrained model that encoded the labelled sentences; else None.
        cut: number of labelled sentences that were truncated to length T.
        path: path of the user's own text file or image folder; else None.
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
        """Check by SHA-256 that a plan's ``data``, given as ``planned``, describes these arrays
        and, if there is a pretrained tokenizer, its vocabulary.

        Raises:
            UserError: the dataset or its vocabulary is another one.
        """
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


def with_channel_axis(images: Array) -> Array:
    """Return grey images (N, H, W) as (N, 1, H, W), and colour images (N, C, H, W) unchanged."""
    return images[:, None] if images.ndim == 3 else images


def normalised(images: Array, mean: Constant, std: Constant) -> NDArray[np.float32]:
    """Normalise uint8 ``images`` to float32: (N, H, W) → (N, 1, H, W), or (N, C, H, W) of the same
    shape, by (x/255 − ``mean``)/``std``, with one constant for all channels or one per channel.

    Every operation is in float32, in this order: the same bits as torchvision's ``ToTensor`` and
    ``Normalize``. Computing in float64 and rounding once would differ in the last bit.
    """
    x = with_channel_axis(images.astype(np.float32))
    x /= np.float32(255)
    x -= np.asarray(mean, np.float32).reshape(-1, 1, 1)
    x /= np.asarray(std, np.float32).reshape(-1, 1, 1)
    return x
