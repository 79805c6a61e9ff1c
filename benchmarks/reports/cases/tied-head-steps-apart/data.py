import numpy as np

r = np.random.default_rng(5)
np.savez("batch.npz", ids=r.integers(0, 40, (4, 7)), y=r.integers(0, 40, (4, 7)))
