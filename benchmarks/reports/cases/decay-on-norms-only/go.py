import numpy as np

from dualml.parity import compare

r = np.random.default_rng(4)
x, y = r.normal(size=(10, 12)).astype("float32"), r.integers(0, 2, 10)
found = compare(
    "original.py:Net",
    "ours.py:Net",
    x,
    targets=y,
    loss="cross_entropy",
    optimizer=("original.py:make", "ours.py:make"),
    steps=2,
)
print(found.paragraph())
