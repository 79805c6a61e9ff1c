import numpy as np

r = np.random.default_rng(1)
image = r.normal(size=(3, 3, 8, 8)).astype("float32")
np.savez("batch.npz", image=image, timesteps=r.integers(0, 1000, 3))
