"""Mean and standard deviation per channel of a set of images, for
`dualml.experiment.data.normalised`.

Sums of bytes and of their squares are integers and exact; images are processed in small batches,
and only the two quotients at the end are rounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dualml.common.errors import UserError
from dualml.experiment.data.dataset import Array, with_channel_axis

#: Number of images that are processed together.
CHUNK_IMAGES = 1000


@dataclass(frozen=True)
class Statistics:
    """Statistics of pixels divided by 255, one number per channel.

    Attributes:
        samples: number of images.
        pixels: number of pixels of one channel in all images.
        mean, std: mean and population standard deviation over all pixels of the channel.
        image_std: mean over the images of the standard deviation within each image. It is smaller
            than ``std``, since it ignores how images differ from one another, and often mistaken
            for it.
    """

    samples: int
    pixels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    image_std: tuple[float, ...]

    @property
    def constants(self) -> tuple[float | list[float], float | list[float]]:
        """``mean`` and ``std`` for `normalised`: numbers for grey images, lists for colour images.

        Raises:
            UserError: a channel is constant, so that its deviation is 0.
        """
        if 0.0 in self.std:
            raise UserError(
                f"channel {self.std.index(0.0)} has the same value in all {self.pixels:,} pixels: "
                "its deviation is 0, and nothing can be divided by it"
            )
        if len(self.mean) == 1:
            return self.mean[0], self.std[0]
        return list(self.mean), list(self.std)


def statistics(images: Array) -> Statistics:
    """Return the statistics of images uint8 (N, H, W) or (N, C, H, W), by channel.

    Raises:
        UserError: there are no pixels.

    Example:
        >>> s = statistics(np.array([[[0, 255]], [[255, 255]]], np.uint8))
        >>> s.mean, round(s.std[0], 4), s.image_std
        ((0.75,), 0.433, (0.25,))
    """
    if not images.size:
        raise UserError(f"there are no pixels in images of shape {images.shape}")
    shaped = with_channel_axis(images)
    channels, each = shaped.shape[1], shaped.shape[2] * shaped.shape[3]
    sums, squares, inside = [0] * channels, [0] * channels, np.zeros(channels)
    for first in range(0, len(shaped), CHUNK_IMAGES):
        part = shaped[first : first + CHUNK_IMAGES].astype(np.int64)
        one, two = part.sum(axis=(2, 3)), (part * part).sum(axis=(2, 3))  # (n, C)
        inside += np.sqrt(each * two - one * one).sum(axis=0) / each
        sums = [a + int(b) for a, b in zip(sums, one.sum(axis=0), strict=True)]
        squares = [a + int(b) for a, b in zip(squares, two.sum(axis=0), strict=True)]
    n = len(shaped) * each
    return Statistics(
        samples=len(shaped),
        pixels=n,
        mean=tuple(float(Fraction(s, 255 * n)) for s in sums),
        std=tuple(
            math.sqrt(Fraction(n * q - s * s, (255 * n) ** 2))
            for s, q in zip(sums, squares, strict=True)
        ),
        image_std=tuple((inside / len(shaped) / 255).tolist()),
    )
