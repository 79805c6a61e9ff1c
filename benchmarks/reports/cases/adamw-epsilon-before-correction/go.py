import numpy as np

from dualml.parity import compare

r = np.random.default_rng(1)
x, y = r.normal(size=(12, 8)).astype("float32"), r.normal(size=(12, 3)).astype("float32")
found = compare(
    "model.py:Net",
    "library.py:Net",
    x,
    targets=y,
    loss="mse",
    optimizer=("model.py:make", "library.py:make"),
    steps=3,
)
print(found.paragraph())
