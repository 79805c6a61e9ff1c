"""MindSpore's side of the pairs: mindcv and mindone's transformers.

mindone asks transformers for its configurations and, for one model, timm for its own; both would
import PyTorch.
"""

import os
import sys
import types

os.environ["USE_TORCH"] = "0"

import mindcv  # noqa: F401


def mindone() -> types.ModuleType:
    """Import ``mindone.transformers``, which only text models need and which takes seconds."""
    import kernels
    import transformers.utils.import_utils  # noqa: F401

    kernels.install()
    stub = types.ModuleType("timm")
    stub.create_model = None
    sys.modules["timm"] = stub
    import mindone.transformers

    return mindone.transformers
