import numpy as np

r = np.random.default_rng(19)
image = r.normal(size=(2, 3, 12, 12)).astype("float32")
np.savez("batch.npz", image=image, mask=r.integers(0, 2, (2, 1, 7, 7)).astype("float32"))
