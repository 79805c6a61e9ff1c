import numpy as np

r = np.random.default_rng(30)
memory = r.normal(size=(2, 5, 24)).astype("float32")
np.savez("batch.npz", ids=r.integers(0, 30, (2, 6)), memory=memory, y=r.integers(0, 30, (2, 6)))
