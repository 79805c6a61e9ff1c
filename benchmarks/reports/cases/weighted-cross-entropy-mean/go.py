import numpy as np

from dualml.parity import compare

r = np.random.default_rng(22)
x, y = r.normal(size=(16, 10)).astype("float32"), r.integers(0, 5, 16)
if __name__ == "__main__":
    losses = ("theirs.py:loss", "mine.py:loss")
    found = compare("theirs.py:Net", "mine.py:Net", x, targets=y, loss=losses, optimizer={"name": "sgd", "lr": 0.1})
    print(found.page())
