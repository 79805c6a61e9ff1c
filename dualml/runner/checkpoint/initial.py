"""Initial weights from a file: any safetensors file with the model's canonical names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dualml.common.errors import UserError, escape_unprintable
from dualml.common.files import check_regular
from dualml.common.parse import is_unicode
from dualml.experiment.initial import Initial
from dualml.runner.checkpoint import tensorfile
from dualml.runner.checkpoint.sources import open_checkpoint
from dualml.runner.checkpoint.stored_checkpoint import Checkpoint, Shape
from dualml.runner.checkpoint.weights import select_weights, strip_wrapper
from dualml.runner.checkpoint.writing import sha256

#: Element types that are converted to float32; F64 is rounded.
FLOATS = ("F16", "BF16", "F32", "F64")
#: Largest file in bytes: the plan stores its weights once per seed.
MAX_FILE_BYTES = 2**32
#: Maximum number of tensors of an unsupported type that an error names.
MAX_NAMED_TENSORS = tensorfile.MAX_LISTED_NAMES


def open_initial(text: str) -> Checkpoint:
    """Open the file with initial weights at the path ``text``, the value of ``initial`` in an
    experiment; only its header is read. If names begin with ``weights/``, only those tensors are
    returned, without the prefix.

    Raises:
        UserError: the file does not exist, is not safetensors, is too large, is one of several, or
            its path is not Unicode.
    """
    path = Path(text)
    if not is_unicode(text):  # the plan says where it is
        raise UserError(f"{path}: its path is not Unicode text; rename what is not")
    if not path.is_file():
        raise UserError(
            f"initial: there is no file {path}; name a safetensors file, or make one with "
            "dualml checkpoint convert CHECKPOINT FILE.safetensors --weights"
        )
    check_regular(path)
    if (size := path.stat().st_size) > MAX_FILE_BYTES:
        raise UserError(f"initial: {path} has {size:,} bytes; at most {MAX_FILE_BYTES:,} are read")
    checkpoint = open_checkpoint(path)
    if checkpoint.format == "npz":
        raise UserError(
            f"initial: {path} is an npz file; convert it with dualml checkpoint convert {path} "
            "FILE.safetensors"
        )
    marked = any(name.startswith("weights/") for name in checkpoint.tensors)
    return select_weights(checkpoint) if marked else checkpoint


def read_initial(text: str, shapes: Mapping[str, Shape]) -> Initial:
    """Read the initial weights of a model.

    Args:
        text: path of the file.
        shapes: canonical name → shape, of the model.

    Returns:
        The weights as float32 under their canonical names, and the file's path, size in bytes and
        SHA-256.

    Raises:
        UserError: the file belongs to another model (the text lists missing, extra and similar
            names), or a tensor is not floating point or not finite.
    """
    checkpoint = strip_wrapper(open_initial(text), shapes)
    checkpoint.check_model(shapes, "this experiment's")
    wrong = [
        f"{escape_unprintable(n)} ({t.kind})"
        for n, t in checkpoint.tensors.items()
        if t.kind not in FLOATS
    ]
    if wrong:
        raise UserError(
            f"initial: {text} has tensors that are not {', '.join(FLOATS)}: "
            f"{', '.join(wrong[:MAX_NAMED_TENSORS])}; convert them to float32"
        )
    weights = {}
    for name in shapes:
        with np.errstate(over="ignore"):  # told below
            weights[name] = np.asarray(checkpoint.read(name), np.float32)
        if not np.isfinite(weights[name]).all():
            raise UserError(
                f"initial: {escape_unprintable(name)} in {text} has numbers that are not finite in "
                "float32; take weights of an earlier update"
            )
    path = Path(text)
    return Initial(weights, {"path": text, "bytes": path.stat().st_size, "sha256": sha256(path)})
