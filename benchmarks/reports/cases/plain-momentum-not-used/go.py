import numpy as np

from dualml.parity import compare

r = np.random.default_rng(6)
x, y = r.normal(size=(16, 9)).astype("float32"), r.normal(size=(16, 4)).astype("float32")
found = compare(
    "fixed.py:Net",
    "released.py:Net",
    x,
    targets=y,
    loss="mse",
    optimizer=("fixed.py:make", "released.py:make"),
    steps=3,
)
print(found.paragraph())
