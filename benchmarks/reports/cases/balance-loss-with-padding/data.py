import numpy as np

r = np.random.default_rng(75)
ids, mask = r.integers(1, 50, (4, 12)), np.ones((4, 12), "int64")
for row, length in enumerate((5, 12, 6, 3)):
    ids[row, length:] = mask[row, length:] = 0
np.savez("batch.npz", ids=ids, attention_mask=mask)
