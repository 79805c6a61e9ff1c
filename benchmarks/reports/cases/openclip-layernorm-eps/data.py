import numpy as np

r = np.random.default_rng(11)
np.savez("batch.npz", ids=r.integers(0, 50, (4, 8)))
