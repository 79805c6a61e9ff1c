import numpy as np

r = np.random.default_rng(5)
np.savez("batch.npz", ids=r.integers(0, 40, (2, 11)), y=r.integers(0, 40, (2, 11)))
