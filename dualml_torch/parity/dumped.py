"""Convert the tensors of msprobe's dumps to ``.npy`` files beside their ``.pt`` files.

    python -m dualml_torch.parity.dumped DUMP

A ``.pt`` file is a pickle. torch opens it with ``weights_only``, which makes tensors and calls
nothing else; `dualml compare` reads the ``.npy`` files without a framework.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from dualml.common.errors import UserError
from dualml.common.files import convert_read_errors


def convert(folder: Path) -> int:
    """Convert every ``dump_tensor_data/*.pt`` below a folder to a ``.npy`` file beside it,
    overwriting an old one, and return their number; bfloat16 becomes float32.

    Raises:
        UserError: a file that is no tensor, or cannot be written.
    """
    paths = sorted(folder.rglob("dump_tensor_data/*.pt"))
    for path in paths:
        with convert_read_errors(f"{path}: no tensor that torch opens with weights_only"):
            tensor = torch.load(path, map_location="cpu", weights_only=True).detach()
            single = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
            np.save(path.with_suffix(".npy"), single.numpy())
    return len(paths)


def main() -> int:
    """Convert the tensors below the folder named on the command line and print their number; return
    the exit code: 0, or 2 after a wrong call or a file that cannot be converted."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print("usage: python -m dualml_torch.parity.dumped DUMP", file=sys.stderr)
        return 2
    try:
        print(convert(Path(sys.argv[1])))
    except UserError as error:
        print(f"dualml: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
