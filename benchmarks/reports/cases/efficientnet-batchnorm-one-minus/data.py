import numpy as np

r = np.random.default_rng(8)
np.savez("batch.npz", x=r.normal(size=(5, 3, 12, 12)).astype("float32"), y=r.integers(0, 4, 5))
