import numpy as np

from dualml.parity import compare

r = np.random.default_rng(25)
x, y = r.normal(size=(8, 12)).astype("float32"), (r.random((8, 6)) < 0.3).astype("float32")
if __name__ == "__main__":
    losses = ("theirs.py:loss", "mine.py:loss")
    optimizer = {"name": "sgd", "lr": 0.1}
    print(compare("theirs.py:Net", "mine.py:Net", x, targets=y, loss=losses, optimizer=optimizer, steps=2).page())
