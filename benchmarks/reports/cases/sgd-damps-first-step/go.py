import numpy as np

from dualml.parity import compare

r = np.random.default_rng(3)
x, y = r.normal(size=(16, 6)).astype("float32"), r.integers(0, 3, 16)
found = compare(
    "net.py:Net",
    "rewritten.py:Net",
    x,
    targets=y,
    loss="cross_entropy",
    optimizer=("net.py:make", "rewritten.py:make"),
    steps=3,
)
print(found.paragraph())
