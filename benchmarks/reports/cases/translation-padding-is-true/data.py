import numpy as np

r = np.random.default_rng(14)
ids = r.integers(1, 30, (4, 8))
for row, length in enumerate((8, 5, 3, 6)):
    ids[row, length:] = 0
np.savez("batch.npz", ids=ids, y=r.integers(0, 30, (4, 8)))
