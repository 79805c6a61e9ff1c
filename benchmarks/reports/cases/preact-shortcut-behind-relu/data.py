import numpy as np

r = np.random.default_rng(12)
np.savez("batch.npz", x=r.normal(size=(4, 3, 8, 8)).astype("float32"), y=r.integers(0, 10, 4))
