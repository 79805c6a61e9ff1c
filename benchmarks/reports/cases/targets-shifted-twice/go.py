import numpy as np

from dualml.parity import compare

ids = np.random.default_rng(61).integers(0, 25, (4, 9))
found = compare(
    "bart.py:Net",
    "git.py:Net",
    ids,
    targets=ids,
    loss=("bart.py:loss", "git.py:loss"),
    optimizer={"name": "adam", "lr": 1e-3},
)
print(found.page())
