"""Optimizer specifications: a frozen dataclass of hyperparameters and a float64 NumPy recurrence.

The specification is the single source of hyperparameters and semantics. The backends implement the
same update rule under the same file name (`dualml_torch/algorithms/optim/adam.py`,
`dualml_ms/algorithms/optim/adam.py`); a backend that cannot honour a field raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.common.former_members import keep_former_members
from dualml.common.json_types import JsonMapping, JsonObject
from dualml.common.registry import ClassRegistry, cited_source

Array = NDArray[np.float64]
Params = dict[str, Array]
State = dict[str, Params]
#: Name → hyperparameters.
Variants = Mapping[str, Mapping[str, Any]]
MAX_LR = 3e38  # largest learning rate: what float32 can hold


@keep_former_members
@dataclass(frozen=True, kw_only=True)
class OptimizerSpec:
    """Base class of every optimizer specification.

    Args:
        lr: learning rate η, > 0; an `LRSchedule` may scale it step by step.

    Raises:
        UserError: a value outside of its range.
    """

    name: ClassVar[str]
    #: Variant → hyperparameters that make variants distinguishable (ε = 1e-3, not 1e-8); the
    #: conformance suite trains with them.
    variants: ClassVar[Variants]

    lr: float

    @property
    def state_keys(self) -> tuple[str, ...]:
        """Names (PyTorch's) of the state tensors that this specification keeps for each parameter;
        none here."""
        return ()

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "float" and type(value) is int:  # TOML writes 1 for 1.0
                object.__setattr__(self, field.name, float(value))
            elif field.type == "bool" and not isinstance(value, bool):
                raise UserError(
                    f"{self.name}: {field.name} must be true or false; "
                    f"received {field.name}={value!r}"
                )
        self.require("lr", 0.0, MAX_LR, open_low=True)

    def require(
        self,
        field: str,
        low: float,
        high: float,
        *,
        open_low: bool = False,
        closed_high: bool = False,
    ) -> None:
        """Check that ``low <= field < high`` (``low < field`` if ``open_low``, ``field <= high`` if
        ``closed_high``).

        Raises:
            UserError: the value of ``field`` is outside this range, or no float.
        """
        value = getattr(self, field)
        above = isinstance(value, float) and (value > low if open_low else value >= low)
        below = isinstance(value, float) and (value <= high if closed_high else value < high)
        if not (above and below):
            first, last = "<" if open_low else "<=", "<=" if closed_high else "<"
            raise UserError(
                f"{self.name}: {field} must satisfy {low:g} {first} {field} {last} {high:g}; "
                f"received {field}={value!r}"
            )

    def init(self, params: Mapping[str, Array]) -> State:
        """Return the state before the first update: state key → parameter name → float64 zeros of
        its shape."""
        return {
            slot: {n: np.zeros_like(p, dtype=np.float64) for n, p in params.items()}
            for slot in self.state_keys
        }

    def update(
        self,
        params: Mapping[str, Array],
        grads: Mapping[str, Array],
        state: Mapping[str, Mapping[str, Array]],
        step: int,
        lr: float | None = None,
    ) -> tuple[Params, State]:
        """Apply update number ``step`` (from 1); pure: no argument is modified.

        Args:
            params, grads: name → float64 array, equal keys and shapes.
            state: as returned by `init` or the previous `update`.
            lr: learning rate of this update; ``self.lr`` when omitted.

        Returns:
            New parameters and new state.
        """
        new: Params = {}
        after: State = {slot: {} for slot in self.state_keys}
        for name, p in params.items():
            own = {slot: state[slot][name] for slot in self.state_keys}
            new[name], own = self.update_param(
                p, grads[name], own, step, self.lr if lr is None else lr
            )
            for slot in self.state_keys:
                after[slot][name] = own[slot]
        return new, after

    def update_param(
        self, p: Array, g: Array, s: Params, step: int, lr: float
    ) -> tuple[Array, Params]:
        """Update one parameter tensor by the recurrence as the paper writes it; no argument is
        modified. This base class raises `NotImplementedError`.

        Args:
            p, g: parameter and gradient, float64 of one shape.
            s: state key → array of that shape, from `init` or the previous update.
            step: number of the update, from 1.
            lr: its learning rate.

        Returns:
            The new parameter, and its new state.
        """
        raise NotImplementedError

    def formulas(self) -> list[str]:
        """Return the lines of the update in LaTeX, with the options of this specification; empty in
        this base class."""
        return []

    @classmethod
    def source(cls) -> str:
        """Return the text after ``Source:`` in the class's docstring, the papers, in one line;
        empty without one."""
        return cited_source(cls)

    def hyperparameters(self) -> JsonObject:
        """Return all fields, defaults too, as JSON values (a tuple as a list), and the optimizer's
        name as ``name``."""
        values = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        return {"name": self.name, **values}


#: The gradient of a mini-batch in LaTeX, without and with coupled weight decay.
GRADIENT = r"g_t = \frac{1}{B} \sum_{i \in B_t} \nabla \ell_i ( \theta_{t-1} )"
DECAYED = GRADIENT + r" + \lambda \, \theta_{t-1}"

#: Name → optimizer specification, in the order of tables.
RULES: ClassRegistry[OptimizerSpec] = ClassRegistry("optimizer", "dualml.algorithms.optim")


def rule_from(spec: JsonMapping) -> OptimizerSpec:
    """Make an optimizer specification from its name and hyperparameters: ``{"name": "adam", "lr":
    1e-3}`` → ``Adam(lr=1e-3)``.

    Raises:
        UserError: unknown optimizer or hyperparameter, missing or out-of-range value.
    """
    return RULES.from_spec(spec, "hyperparameter")
