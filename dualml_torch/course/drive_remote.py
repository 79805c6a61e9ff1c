"""Run a student's language model with a parameter server: rank 0 has the tables, rank 1 trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed.rpc as rpc

from dualml_torch.course.drive_rpc import start_agent, worker_name

Arrays = Mapping[str, Any]
SERVER, TRAINER = 0, 1
#: Seconds that a call to another rank may take: a backward pass in a context that was used before
#: waits in vain, and the time limit of the whole call is not much longer.
CALL_S = 3.0


class HeavyBall(torch.optim.Optimizer):
    """Gradient descent with momentum, v ← μ·v + g, θ ← θ − η·v, that takes only a learning rate."""

    MOMENTUM = 0.5

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Update each parameter that has a gradient in place; ``closure`` is ignored."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    v = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                    v.mul_(self.MOMENTUM).add_(p.grad)
                    p.sub_(group["lr"] * v)


class Recurrent(torch.nn.Module):
    """The recurrent layer h_t = s(W·x_t + U·h_{t−1} + b) with softsign s."""

    def __init__(self, arrays: Arrays) -> None:
        super().__init__()
        for name in ("input", "hidden", "bias"):
            p = torch.nn.Parameter(torch.from_numpy(arrays[name].copy()))
            self.register_parameter(name, p)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the outputs for vectors (time, batch, width), and the last of them."""
        w = dict(self.named_parameters())
        outputs = []
        for step in x:
            z = step @ w["input"].T + hidden @ w["hidden"].T + w["bias"]
            hidden = z / (1 + z.abs())
            outputs.append(hidden)
        return torch.stack(outputs), hidden


def make_embedding(table: torch.Tensor) -> Any:
    """Make and return the embedding with these word vectors, which are trained, on the rank where
    this runs."""
    return torch.nn.Embedding.from_pretrained(table, freeze=False)


def make_decoder(weight: torch.Tensor, bias: torch.Tensor) -> Any:
    """Make and return the linear decoder with this weight and bias, on the rank where this runs."""
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        linear.weight.copy_(weight)
        linear.bias.copy_(bias)
    return linear


def values_of(reference: Any) -> list[Any]:
    """Return copies of the parameters, as arrays, of the module on this rank that ``reference``
    refers to."""
    return [p.detach().numpy().copy() for p in reference.local_value().parameters()]


def remote_tables(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run the student's model ``target`` of ``module`` on rank 1, while rank 0 serves; ``3/table``,
    ``3/decoder``, … are parameters after update 3, ``3/loss`` the loss before it, ``3/state`` the
    state returned. On rank 0 the result is empty. All ranks call it."""
    if not rpc._is_current_rpc_agent_set():  # of an earlier call of these ranks
        start_agent(comm)
        rpc._set_rpc_timeout(CALL_S)
    comm.barrier()
    out: dict[str, Any] = {}
    if comm.rank == TRAINER:
        given = {
            n: torch.from_numpy(arrays[n].copy()) for n in ("table", "decoder", "decoder_bias")
        }
        server = worker_name(SERVER)
        embedding = rpc.remote(server, make_embedding, args=(given["table"],))
        decoder = rpc.remote(server, make_decoder, args=(given["decoder"], given["decoder_bias"]))
        rnn = Recurrent(arrays)
        model = getattr(module, target)(embedding, rnn, decoder, HeavyBall, options["lr"])
        hidden = torch.from_numpy(arrays["state"].copy())
        for step in range(1, options["steps"] + 1):
            words, y = (torch.from_numpy(arrays[f"{n}/{step}"]) for n in ("words", "y"))
            made = model.step(torch.nn.functional.cross_entropy, words, y, hidden)
            if not isinstance(made, tuple | list) or len(made) != 2:
                what = type(made).__name__
                raise TypeError(f"step has to return the loss and the state; it returned {what}")
            loss, hidden = made
            out[f"{step}/loss"] = np.asarray(float(loss))
            out[f"{step}/state"] = hidden.detach().numpy().copy()
            (table,) = rpc.rpc_sync(server, values_of, args=(embedding,))
            weight, bias = rpc.rpc_sync(server, values_of, args=(decoder,))
            now = {"table": table, "decoder": weight, "decoder_bias": bias}
            now |= {n: p.detach().numpy().copy() for n, p in rnn.named_parameters()}
            out |= {f"{step}/{n}": a for n, a in now.items()}
    comm.barrier()
    return out
