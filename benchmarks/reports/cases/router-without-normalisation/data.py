import numpy as np

r = np.random.default_rng(16)
np.savez("batch.npz", ids=r.integers(0, 40, (2, 7)), y=r.integers(0, 40, (2, 7)))
