"""The transforms of torchvision and of `mindspore.dataset.vision`, on the same images.

Where they differ, the bound is what was measured on MindSpore 2.10 and torchvision 0.28, on a CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dualml.experiment.data import normalised

Image = pytest.importorskip("PIL.Image", reason="images come from Pillow")
theirs = pytest.importorskip("mindspore.dataset.vision", reason="compares both frameworks")
pytest.importorskip("torch", reason="compares both frameworks")

from dualml.common.errors import Unsupported  # noqa: E402
from dualml_torch.experiment.data import import_torchvision  # noqa: E402

try:
    ours: Any = import_torchvision().transforms
except Unsupported as missing:
    pytest.skip(str(missing), allow_module_level=True)

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
PIXELS = np.random.default_rng(0).integers(0, 256, (32, 32, 3)).astype(np.uint8)


def array(image: Any) -> np.ndarray:
    return np.asarray(image)


def test_to_tensor_and_normalize() -> None:
    """torchvision's normalisation has the bits of `normalised`; MindSpore's rounds differently."""
    both = ours.Compose([ours.ToTensor(), ours.Normalize(MEAN, STD)])
    wanted = both(Image.fromarray(PIXELS)).numpy()
    channels_first = PIXELS.transpose(2, 0, 1)[None]
    assert np.array_equal(wanted, normalised(channels_first, MEAN, STD)[0])
    scaled = theirs.ToTensor()(PIXELS)
    found = theirs.Normalize(MEAN, STD, is_hwc=False)(scaled)
    assert 0 < np.abs(found - wanted).max() < 1e-6  # 4.8e-7
    assert 0 < np.abs(scaled - ours.ToTensor()(Image.fromarray(PIXELS)).numpy()).max() < 1e-7


def test_flips_are_equal() -> None:
    image = Image.fromarray(PIXELS)
    for name in ("RandomHorizontalFlip", "RandomVerticalFlip"):
        wanted = array(getattr(ours, name)(1.0)(image))
        assert np.array_equal(wanted, getattr(theirs, name)(1.0)(PIXELS))
        assert not np.array_equal(wanted, PIXELS)
        assert np.array_equal(PIXELS, getattr(theirs, name)(0.0)(PIXELS))


def test_padding_and_crops_are_equal() -> None:
    """Random crops are drawn from each framework's own generator; a crop of the full size shows the
    padding, and both can only give crops of the padded image."""
    image = Image.fromarray(PIXELS)
    padded = array(ours.RandomCrop(40, padding=4)(image))
    assert np.array_equal(padded, theirs.RandomCrop(40, padding=4)(PIXELS))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (32, 32), axis=(0, 1))
    places = {windows[i, j].tobytes() for i in range(9) for j in range(9)}
    for _ in range(10):
        for crop in (
            ours.RandomCrop(32, padding=4)(image),
            theirs.RandomCrop(32, padding=4)(PIXELS),
        ):
            assert array(crop).transpose(2, 0, 1).tobytes() in places


@pytest.mark.parametrize("size", [16, 64])
def test_resize_depends_on_what_is_given(size: int) -> None:
    """Resize depends on the input type: Pillow images give Pillow's bits on both sides; arrays are
    not smoothed by MindSpore before downscaling (catalogue entry ``resize-antialias``)."""
    image = Image.fromarray(PIXELS)
    wanted = array(ours.Resize((size, size))(image)).astype(int)
    of_image = array(theirs.Resize((size, size), theirs.Inter.LINEAR)(image))
    assert np.array_equal(wanted, of_image)
    of_array = array(theirs.Resize((size, size))(PIXELS)).astype(int)
    far = np.abs(of_array - wanted).max()
    assert far > 40 if size < 32 else far <= 1  # 52, 1
