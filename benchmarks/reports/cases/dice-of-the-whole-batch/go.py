import numpy as np

from dualml.parity import compare

r = np.random.default_rng(65)
x = r.normal(size=(4, 3, 8, 8)).astype("float32")
y = (r.random((4, 2, 64)) < np.array([0.05, 0.2, 0.5, 0.9])[:, None, None]).astype("float32")
if __name__ == "__main__":
    losses = ("library.py:loss", "mine.py:loss")
    print(compare("library.py:Net", "mine.py:Net", x, targets=y, loss=losses).page())
