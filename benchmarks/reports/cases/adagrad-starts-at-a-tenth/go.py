import numpy as np

from dualml.parity import compare

r = np.random.default_rng(7)
x, y = r.normal(size=(12, 10)).astype("float32"), r.integers(0, 5, 12)
found = compare(
    "net_torch.py:Net",
    "net_ms.py:Net",
    x,
    targets=y,
    loss="cross_entropy",
    optimizer=("net_torch.py:make", "net_ms.py:make"),
    steps=3,
)
print(found.paragraph())
