import numpy as np

r = np.random.default_rng(31)
images = r.integers(0, 256, (4, 12, 10, 3)).astype("float32")
np.savez("batch.npz", images=images, y=r.normal(size=(4, 6)).astype("float32"))
