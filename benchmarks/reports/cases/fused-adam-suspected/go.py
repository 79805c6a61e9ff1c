import numpy as np

from dualml.parity import compare

r = np.random.default_rng(37)
ids = r.integers(0, 24, (4, 10))
found = compare(
    "lm.py:Net",
    "lm.py:Other",
    ids[:, :-1],
    targets=ids[:, 1:],
    loss="cross_entropy",
    optimizer=("lm.py:plain", "lm.py:fused"),
    steps=4,
)
print(found.page())
