import numpy as np

r = np.random.default_rng(29)
np.savez("batch.npz", ids=r.integers(0, 50, (2, 8)), y=r.integers(0, 50, (2, 8)))
