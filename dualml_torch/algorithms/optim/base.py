"""Shared base of the optimizers in this folder: from an update rule to a `torch.optim.Optimizer`.

A rule's own file defines two functions: `coefficients`, the numbers that change between steps, in
float64; and `update`, the recurrence, in place, over lists of tensors (torch's ``_foreach_``
functions: one call per operation instead of one per operation and tensor). The same lines run
eagerly or compiled into a single pass over memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from dualml.algorithms.optim import OptimizerSpec, rule_from
from dualml.common.errors import UserError
from dualml.common.former_members import keep_former_members
from dualml.common.registry import Registry
from dualml_torch.algorithms.optim.compiled import Cache, run_compiled
from dualml_torch.algorithms.optim.foreach import Group, List, Number, Workspace

LARGE = 1 << 18  # elements; 1 MiB of float32
#: Elements of a block per thread: everything an update touches (parameter, gradient, state,
#: scratch) stays in a cache, and threads are not woken more often than it is worth.
BLOCK = 1 << 17
Work = list[tuple[Tensor, Tensor, dict[str, Any]]]


@keep_former_members
class RuleOptimizer(torch.optim.Optimizer):
    """A native optimizer with the hyperparameters, defaults and checks of its rule.

    Args:
        params: parameters, or parameter groups; a group may override any hyperparameter. What the
            first group has need not be repeated: engines make a new optimizer from its groups.
        compiled: run the update through TorchInductor: one pass over memory instead of one per
            operation. The first step takes seconds and, on a CPU, needs a C++ compiler; changing
            a hyperparameter other than ``lr`` during training compiles again. A rule that is one
            operation anyway (`is_one_operation`) runs as it is.
        **hyperparameters: the fields of the rule in `dualml.algorithms.optim`.

    Raises:
        UserError: a hyperparameter that the rule refuses, a complex parameter, a sparse gradient.
    """

    rule_type: ClassVar[type[OptimizerSpec]]
    compiled: bool

    def __init__(
        self, params: Iterable[Any], *, compiled: bool = False, **hyperparameters: Any
    ) -> None:
        params = list(params)
        if params and isinstance(params[0], dict):
            names = [field.name for field in fields(self.rule_type) if field.name in params[0]]
            hyperparameters = {name: params[0][name] for name in names} | hyperparameters
        rule = rule_from({"name": self.rule_type.name, **hyperparameters})
        self.compiled = compiled
        self._scratch: dict[torch.dtype, Tensor] = {}
        self._cache: Cache = {}
        super().__init__(params, asdict(rule))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, with hyperparameters of their own if the group has any; after an error
        nothing is added.

        Raises:
            UserError: a hyperparameter that the rule refuses, or a complex parameter.
        """
        super().add_param_group(param_group)
        try:
            self.param_groups[-1].update(asdict(self.spec_of_group(self.param_groups[-1])))
            if any(p.is_complex() for p in self.param_groups[-1]["params"]):
                raise UserError(f"{self.rule_type.name}: complex parameters are not supported")
        except UserError:
            self.param_groups.pop()
            raise

    def spec_of_group(self, group: Group) -> OptimizerSpec:
        """Return the rule with this group's hyperparameters, validated. UserError: the rule refuses
        one."""
        values = {field.name: group[field.name] for field in fields(self.rule_type)}
        return rule_from({"name": self.rule_type.name, **values})

    def __getstate__(self) -> dict[str, Any]:  # for copy and pickle
        return {**super().__getstate__(), "compiled": self.compiled}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._scratch, self._cache = {}, {}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make one update of every parameter that has a gradient; return the result of ``closure``,
        which is called first and computes the gradients again, None without one. UserError: a
        sparse gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.advance()
        return loss

    @torch.no_grad()
    def advance(self) -> None:
        """Make one update of every parameter that has a gradient, like `step` but without closure,
        hooks and the profiler's mark, which take as long as the update of a small model. UserError:
        a sparse gradient."""
        for group in self.param_groups:
            compiled = self.compiled and not self.is_one_operation(group)
            for (step, _), work in self._collect_work(group, together=compiled).items():
                params, grads = [p for p, _, _ in work], [g for _, g, _ in work]
                state = {k: [s[k] for _, _, s in work] for k in work[0][2] if k != "step"}
                numbers = self.coefficients(group, step)
                if compiled:
                    run_compiled(self._cache, self.update, group, numbers, params, grads, state)
                else:
                    whole = self.is_one_operation(group)
                    parts = [(params, grads, state)] if whole else iter_blocks(params, grads, state)
                    for p, g, slots in parts:
                        self.update(p, g, slots, group, *numbers, workspace=self._workspace)

    def _collect_work(self, group: Group, together: bool) -> dict[tuple[int, int], Work]:
        """Count an update in the state of each parameter that has a gradient, make missing state,
        and group these parameters, with gradients and state, by what is updated together.
        UserError: a sparse gradient.

        Parameters with the same number of updates are together; unless ``together``, a tensor on a
        CPU too large for the cache is a group of its own. Keys: the update's number, and the id of
        a tensor by itself, else 0.
        """
        work: dict[tuple[int, int], Work] = {}
        for p in group["params"]:
            g = p.grad
            if g is None:
                continue
            if g.is_sparse:
                raise UserError(
                    f"{self.rule_type.name}: sparse gradients are not supported; "
                    "make the embedding with sparse=False"
                )
            state = self.state[p]
            if not state:
                state.update(step=0, **self.initial_state(p, group))
            state["step"] += 1
            alone = id(p) if p.numel() > LARGE and p.is_cpu and not together else 0
            work.setdefault((state["step"], alone), []).append((p, g, state))
        return work

    def _workspace(self, tensors: list[Tensor]) -> list[Tensor] | None:
        """Return reused, uninitialised scratch memory for a list of one tensor on a CPU, because
        clearing the pages of a new allocation would cost more than the arithmetic; None for several
        tensors, on a GPU or for a DTensor."""
        if len(tensors) > 1 or not tensors[0].is_cpu or hasattr(tensors[0], "to_local"):
            return None  # a shard (DTensor) is no view of a buffer, either
        x, n = tensors[0], tensors[0].numel()
        buffer = self._scratch.get(x.dtype)
        if buffer is None or buffer.numel() < n:
            buffer = self._scratch[x.dtype] = x.new_empty(n)
        return [buffer.as_strided(x.shape, x.stride())]  # dense, in whatever order

    def initial_state(self, p: Tensor, group: Group) -> dict[str, Tensor]:
        """Return the state of ``p`` before the first update: state name → zeros of the shape of
        ``p``."""
        # Not group["lr"]: a schedule may have set it to 0, which no rule accepts.
        slots = self.spec_of_group({**group, "lr": 1.0}).state_keys
        return {slot: torch.zeros_like(p, requires_grad=False) for slot in slots}

    @staticmethod
    def is_one_operation(group: Group) -> bool:
        """Return whether `update` with the hyperparameters of ``group`` already is a single pass
        over memory, which no compiler can shorten; False unless a rule overrides this."""
        return False

    @staticmethod
    def coefficients(group: Group, step: int) -> tuple[float, ...]:
        """Return the numbers of update ``step`` (from 1) of a ``group`` that change during
        training, in the order in which `update` takes them; every rule overrides this."""
        raise NotImplementedError

    @staticmethod
    def update(
        p: List,
        g: List,
        state: Mapping[str, List],
        group: Group,
        *numbers: Number,
        workspace: Workspace,
    ) -> None:
        """Apply the recurrence in place to the tensors of ``p`` and of ``state``; never change
        those of ``g``.

        Args:
            p, g: parameters and gradients, of one shape each.
            state: state name → tensors of these shapes.
            group: the hyperparameters.
            numbers: what `coefficients` returned, as positional arguments; each rule names its own.
            workspace: ``workspace(p)`` returns scratch tensors shaped like those of ``p``, or None:
                the rule then allocates new ones.
        """
        raise NotImplementedError


def iter_blocks(
    params: List, grads: List, state: dict[str, List]
) -> Iterable[tuple[List, List, dict[str, List]]]:
    """Yield blocks, 1-D views of equal spans, of a single large tensor on a CPU, its gradient and
    its state, so that they stay in the cache through all operations of an update; anything else
    once, unchanged. AdamW of an embedding of 2.7 million numbers then takes 0.88 of its time (two
    threads; measured)."""
    p, g = params[0], grads[0]
    slots = {name: tensors[0] for name, tensors in state.items()}
    together = [p, g, *slots.values()]
    block = BLOCK * torch.get_num_threads()
    if (
        p.numel() <= max(LARGE, block)
        or not p.is_cpu
        or len(params) > 1
        or not same_layout(together)
    ):
        yield params, grads, state
        return
    parts = [t.as_strided((t.numel(),), (1,)).split(block) for t in together]
    for one, gradient, *rest in zip(*parts, strict=True):
        yield [one], [gradient], {name: [t] for name, t in zip(slots, rest, strict=True)}


def same_layout(tensors: List) -> bool:
    """Return whether all tensors are dense and of one layout: the same element at the same offset.
    False if one is a DTensor."""
    dense = torch.ops.aten.is_non_overlapping_and_dense
    return all(
        not hasattr(t, "to_local") and t.stride() == tensors[0].stride() and dense(t)
        for t in tensors
    )


OPTIMIZERS: Registry[type[RuleOptimizer]] = Registry("optimizer", "dualml_torch.algorithms.optim")
