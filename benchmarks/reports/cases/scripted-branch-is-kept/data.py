import numpy as np

r = np.random.default_rng(21)
np.savez("batch.npz", x=1 + r.normal(size=(4, 6)).astype("float32"))
