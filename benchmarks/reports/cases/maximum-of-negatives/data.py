import numpy as np

r = np.random.default_rng(82)
observations = r.normal(size=(24, 6)).astype("float32")
actions, advantages = r.integers(0, 4, 24), r.normal(size=24).astype("float32")
old = np.log(r.uniform(0.1, 0.5, 24)).astype("float32")
np.savez("batch.npz", observations=observations, actions=actions, advantages=advantages, old=old)
