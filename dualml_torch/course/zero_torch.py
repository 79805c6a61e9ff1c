"""Memory: Adam whose state is sharded over the ranks (ZeRO, stage 1), in PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class ZeroAdam:
    """Adam on one long vector of parameters; rank r of n keeps m and v of part r alone.

    An update: the gradients of all ranks are averaged, and every rank receives its part of the
    mean; it updates its part of the parameters; the parts go to all ranks.

    Args:
        comm: the communicator; ``comm.rank``, ``comm.size``, ``comm.reduce_scatter(x)`` (part r of
            the sum over the ranks, on rank r), ``comm.all_gather(x)`` (a list of every rank's x).
        parameters: (N,) float32, the same on all ranks, changed in place; N is a multiple of n.
        lr, betas, eps: η, (β₁, β₂) and ε of Adam, with its bias correction, without decay.

    Attributes:
        m, v: (N/n,) the averages of this rank's part.
    """

    def __init__(
        self,
        comm: Any,
        parameters: Tensor,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self.comm, self.parameters = comm, parameters
        self.lr, self.betas, self.eps = lr, betas, eps
        # solution: begin pass
        length = len(parameters) // comm.size
        self.own = slice(comm.rank * length, (comm.rank + 1) * length)
        self.m = torch.zeros(length)
        self.v = torch.zeros(length)
        self.t = 0
        # solution: end

    @torch.no_grad()
    def step(self, gradient: Tensor) -> None:
        """One update; ``gradient`` (N,) is this rank's own, of as many samples as the others'."""
        # solution: begin
        g = self.comm.reduce_scatter(gradient) / self.comm.size
        beta1, beta2 = self.betas
        self.t += 1
        self.m = beta1 * self.m + (1 - beta1) * g
        self.v = beta2 * self.v + (1 - beta2) * g * g
        m_hat = self.m / (1 - beta1**self.t)
        v_hat = self.v / (1 - beta2**self.t)
        part = self.parameters[self.own] - self.lr * m_hat / (v_hat.sqrt() + self.eps)
        self.parameters.copy_(torch.cat(self.comm.all_gather(part)))
        # solution: end
