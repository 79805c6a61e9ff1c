import numpy as np

from dualml.parity import compare

r = np.random.default_rng(38)
x, y = r.normal(size=(10, 8)).astype("float32"), r.integers(0, 3, 10)
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
