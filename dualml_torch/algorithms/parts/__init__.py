"""Fused functions decomposed into single calls, following their documentation.

Ports of a model write losses, norms and cells as separate calls, one of which may be wrong. Where
no mutation of the fused function explains a difference, a mutation of one of these calls may. Each
function has the arguments of PyTorch's; for cases that it does not implement it raises
`NotImplementedError`, and PyTorch's own function is called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from dualml_torch.algorithms.parts import functions, losses, norms, recurrent


def refuse_other_arguments(one: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it raises NotImplementedError for arguments that it does not have;
    unknown keyword arguments that are None or False are dropped instead."""
    known = inspect.signature(one)

    def call(*args: Any, **kwargs: Any) -> Any:
        chosen = {
            n: v
            for n, v in kwargs.items()
            if n in known.parameters or not (v is None or v is False)  # `in` would compare a tensor
        }
        try:
            given = known.bind(*args, **chosen)
        except TypeError as error:
            raise NotImplementedError from error
        return one(*given.args, **given.kwargs)

    return call


FUSED: dict[str, Callable[..., Any]] = {
    name: refuse_other_arguments(vars(module)[name])
    for module, names in (
        (losses, ("mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy",
                  "binary_cross_entropy_with_logits", "nll_loss", "cross_entropy", "kl_div")),
        (norms, ("normalize", "cosine_similarity", "layer_norm", "group_norm", "batch_norm")),
        (recurrent, ("lstm", "gru", "rnn_tanh", "lstm_cell", "gru_cell", "rnn_tanh_cell")),
        (functions, ("embedding_bag", "einsum", "linear", "silu", "gelu", "glu", "softplus",
                     "log_sigmoid", "softmax", "log_softmax", "adaptive_avg_pool2d",
                     "pixel_shuffle", "pixel_unshuffle", "grid_sample")),
    )
    for name in names
}  # fmt: skip
