"""The training data of both scripts (real digits, 8 rows of 8 pixels) and their initial weights.

``python batch.py`` writes ``batch.npz`` for ``dualml compare``.
"""

import numpy as np
from sklearn.datasets import load_digits

digits = load_digits()
x = (digits.images[:64] / 16).astype(np.float32)
y = digits.target[:64].astype(np.int64)


def start(shapes):
    """Return one array per parameter: matrices are random, biases 0, LayerNorm scales 1."""
    rng = np.random.default_rng(0)
    for name, shape in shapes:
        if len(shape) > 1:
            yield (rng.normal(size=shape) / shape[1] ** 0.5).astype(np.float32)
        else:
            scale = "norm" in name and not name.endswith(("bias", "beta"))
            yield np.full(shape, float(scale), np.float32)


if __name__ == "__main__":
    np.savez("batch.npz", x=x, y=y)
