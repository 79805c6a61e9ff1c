"""The minimal program of a group of ranks in plain MindSpore under msrun (see minimal.py)."""

from __future__ import annotations

import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import communication, ops

ms.set_device("CPU")
communication.init()
total = ops.AllReduce()(ms.Tensor(np.ones(1, np.float32)))
assert total.asnumpy()[0] == communication.get_group_size()
Path(sys.argv[1], str(communication.get_rank())).touch()
