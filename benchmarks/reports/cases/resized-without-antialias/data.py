import numpy as np

images = np.random.default_rng(30).integers(0, 256, (2, 3, 40, 40)).astype("float32")
np.savez("batch.npz", images=images)
