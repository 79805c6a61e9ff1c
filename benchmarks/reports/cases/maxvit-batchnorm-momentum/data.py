import numpy as np

r = np.random.default_rng(4)
np.savez("batch.npz", x=r.normal(size=(6, 4, 8, 8)).astype("float32"), y=r.integers(0, 5, 6))
