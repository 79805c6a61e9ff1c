import numpy as np

r = np.random.default_rng(74)
ids, mask = r.integers(1, 40, (5, 10)), np.ones((5, 10), "int64")
for row, length in enumerate((10, 4, 7, 3, 8)):
    ids[row, length:] = mask[row, length:] = 0
np.savez("batch.npz", ids=ids, attention_mask=mask)
