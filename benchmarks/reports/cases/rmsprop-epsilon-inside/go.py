import numpy as np

from dualml.parity import compare

r = np.random.default_rng(0)
x, y = r.normal(size=(16, 10)).astype("float32"), r.integers(0, 4, 16)
found = compare(
    "ours.py:Net",
    "theirs.py:Net",
    x,
    targets=y,
    loss="cross_entropy",
    optimizer=("ours.py:make", "theirs.py:make"),
    steps=3,
)
print(found.paragraph())
