import numpy as np

r = np.random.default_rng(24)
np.savez("batch.npz", ids=r.integers(0, 50, (2, 9)))
