import numpy as np

r = np.random.default_rng(2)
tokens = r.normal(size=(3, 7, 24)).astype("float32")
np.savez("batch.npz", tokens=tokens, timesteps=r.integers(1, 1000, 3))
