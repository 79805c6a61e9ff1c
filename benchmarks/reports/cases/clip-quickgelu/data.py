import numpy as np

r = np.random.default_rng(3)
np.savez("batch.npz", ids=r.integers(0, 60, (3, 9)))
