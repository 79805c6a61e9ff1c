import numpy as np

r = np.random.default_rng(17)
np.savez("batch.npz", ids=r.integers(0, 40, (2, 12)), y=r.integers(0, 40, (2, 12)))
