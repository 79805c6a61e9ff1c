"""The port computes what the model computes: outputs, loss, gradients, three updates by Adam.

The tolerance is measured, not chosen; where the test fails, its message names the first layer that
differs, the line, and the cause if one was found.

    pytest examples/port_under_test
"""

from pathlib import Path

import numpy as np

from dualml.parity.testing import assert_parity

HERE = Path(__file__).parent


def test_the_port_is_the_model():
    draw = np.random.default_rng(0)
    assert_parity(
        f"{HERE / 'net_torch.py'}:Net",
        f"{HERE / 'net_ms.py'}:Net",
        draw.normal(size=(16, 1, 16, 16)).astype(np.float32),
        targets=draw.integers(0, 10, 16),
        loss="cross_entropy",
        optimizer={"name": "adam", "lr": 1e-3},
        steps=3,
    )
