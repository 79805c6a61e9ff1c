import numpy as np

r = np.random.default_rng(6)
np.savez("batch.npz", ids=r.integers(0, 40, (2, 9)), y=r.integers(0, 40, (2, 9)))
