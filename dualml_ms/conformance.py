"""MindSpore adapter of the optimizer conformance tests, see `dualml.backend.conformance`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dualml.algorithms.optim import OptimizerSpec
from dualml.backend.conformance import Gradient, Mode, OptimizerResult, Params

MODES = {"graph": Mode(), "pynative": Mode()}
COMPILES = True


class Optimizers:
    """One optimizer per rule, all in one cell: in graph mode they are compiled together, once for
    all runs.

    Args:
        rules: name → update rule; each has its own parameters.
        shapes: name → shape of the parameters of every optimizer.
        mode: ``graph`` or ``pynative``, set for the whole process.
        rates: rule name → one learning rate per update, in place of the rule's own; None for none.
    """

    def __init__(
        self,
        rules: Mapping[str, OptimizerSpec],
        shapes: Mapping[str, tuple[int, ...]],
        mode: str,
        rates: Mapping[str, Sequence[float]] | None,
    ) -> None:
        import mindspore as ms
        from mindspore import nn, ops

        from dualml_ms.algorithms.optim import optimizer

        class AllOptimizers(nn.Cell):
            def __init__(self, optimizers: Sequence[nn.Optimizer], each: int) -> None:
                super().__init__(auto_prefix=False)
                self.optimizers, self.each = nn.CellList(optimizers), each

            def construct(self, *gradients):
                done = True
                for i in range(len(self.optimizers)):
                    own = gradients[i * self.each : (i + 1) * self.each]
                    done = ops.depend(done, self.optimizers[i](own))
                return done

        self.mode = ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE
        ms.set_context(mode=self.mode)
        self.parameters = {
            name: {
                n: ms.Parameter(ms.Tensor(np.zeros(shape), ms.float32), name=f"{name}.{n}")
                for n, shape in shapes.items()
            }
            for name in rules
        }
        self.optimizers = {
            name: optimizer(rule, list(self.parameters[name].values()), rates and rates[name])
            for name, rule in rules.items()
        }
        self.update_all = AllOptimizers(list(self.optimizers.values()), len(shapes))
        self.is_first_run = True

    def run(self, start: Params, gradient: Gradient, steps: int) -> dict[str, OptimizerResult]:
        """Make ``steps`` updates of every optimizer from the parameters ``start``, name → array,
        and a fresh state; return rule name → final parameters and state. ``gradient(parameters,
        step)`` is called before each, with float64 parameters and the step from 1, and returns name
        → gradient."""
        import mindspore as ms

        from dualml_ms.algorithms.optim import load_state, state

        ms.set_context(mode=self.mode)
        names = list(start)
        for name, opt in self.optimizers.items():
            for n, p in self.parameters[name].items():
                p.set_data(ms.Tensor(start[n], ms.float32))
            if (
                not self.is_first_run
            ):  # the first run shows the state that the optimizer itself begins with
                load_state(opt, {}, 0, names)
        self.is_first_run = False
        for step in range(1, steps + 1):
            gradients: list[ms.Tensor] = []
            for own in self.parameters.values():
                now = {n: p.asnumpy().astype(np.float64) for n, p in own.items()}
                gradients += [ms.Tensor(g, ms.float32) for g in gradient(now, step).values()]
            self.update_all(*gradients)
        return {
            name: OptimizerResult(
                {n: p.asnumpy().copy() for n, p in self.parameters[name].items()}, state(opt, names)
            )
            for name, opt in self.optimizers.items()
        }


def optimizers(
    rules: Mapping[str, OptimizerSpec],
    shapes: Mapping[str, tuple[int, ...]],
    mode: str,
    rates: Mapping[str, Sequence[float]] | None = None,
    device: str = "cpu",
) -> Optimizers:
    """Make the optimizers of these rules for a mode of `MODES`, which becomes MindSpore's;
    ``device`` is ignored."""
    return Optimizers(rules, shapes, mode, rates)


def settings() -> dict[str, str]:
    """Return MindSpore's global settings that an optimizer must not change, name → value."""
    import mindspore as ms

    return {"parallel mode": str(ms.get_auto_parallel_context("parallel_mode"))}
