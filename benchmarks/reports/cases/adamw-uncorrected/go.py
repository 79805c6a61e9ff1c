import numpy as np

from dualml.parity import compare

ids = np.random.default_rng(2).integers(0, 30, (4, 9))
found = compare(
    "lm_torch.py:Net",
    "lm_ms.py:Net",
    ids[:, :-1],
    targets=ids[:, 1:],
    loss="cross_entropy",
    optimizer=("lm_torch.py:make", "lm_ms.py:make"),
    steps=2,
)
print(found.paragraph())
