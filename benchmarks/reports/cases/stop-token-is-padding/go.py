import numpy as np

from dualml.parity import compare

r = np.random.default_rng(80)
ids = r.integers(3, 30, (5, 10))
for row, length in enumerate((9, 4, 6, 3, 7)):
    ids[row, length:] = 2
if __name__ == "__main__":
    options = {"loss": ("theirs.py:loss", "mine.py:loss"), "optimizer": {"name": "adam", "lr": 1e-3}}
    print(compare("theirs.py:Net", "mine.py:Net", ids[:, :-1], targets=ids[:, 1:], **options).page())
