import numpy as np

from dualml.parity import compare

r = np.random.default_rng(67)
x, y = r.normal(size=(16, 8)).astype("float32"), r.integers(0, 4, 16)
if __name__ == "__main__":
    optimizers = ("theirs.py:make", "mine.py:make")
    options = {"loss": "cross_entropy", "optimizer": optimizers, "steps": 4}
    print(compare("theirs.py:Net", "mine.py:Net", x, targets=y, **options).page())
