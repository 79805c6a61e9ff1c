import numpy as np

r = np.random.default_rng(9)
np.savez("batch.npz", ids=r.integers(0, 30, (2, 10)), y=r.integers(0, 30, (2, 10)))
