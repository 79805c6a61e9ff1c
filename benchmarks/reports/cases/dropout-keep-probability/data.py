import numpy as np

r = np.random.default_rng(15)
np.savez("batch.npz", x=r.normal(size=(6, 3, 10, 10)).astype("float32"), y=r.integers(0, 7, 6))
