"""Datasets as neutral NumPy arrays: every backend trains on these and on nothing else."""

from dualml.data.dataset import Dataset, fingerprint, normalised
from dualml.data.registry import DATASETS, DatasetInfo
from dualml.data.sources import load

__all__ = ["DATASETS", "Dataset", "DatasetInfo", "fingerprint", "load", "normalised"]
