import numpy as np

r = np.random.default_rng(26)
np.savez("batch.npz", x=r.normal(size=(3, 3, 8, 8)).astype("float32"), y=r.integers(0, 4, 3))
