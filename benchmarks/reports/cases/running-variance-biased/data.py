import numpy as np

r = np.random.default_rng(28)
np.savez("batch.npz", x=r.normal(size=(3, 2, 5, 5)).astype("float32"), y=r.integers(0, 3, 3))
