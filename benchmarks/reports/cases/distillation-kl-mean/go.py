import numpy as np

from dualml.parity import compare

r = np.random.default_rng(23)
x, teacher = r.normal(size=(6, 8)).astype("float32"), 3 * r.normal(size=(6, 17)).astype("float32")
if __name__ == "__main__":
    losses = ("theirs.py:loss", "mine.py:loss")
    optimizer = {"name": "adam", "lr": 1e-3}
    print(compare("theirs.py:Net", "mine.py:Net", x, targets=teacher, loss=losses, optimizer=optimizer).page())
