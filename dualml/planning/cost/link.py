"""The α-β-γ cost model of a link."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dualml.common.errors import UserError


@dataclass(frozen=True)
class Link:
    """Constants of a link: a message of b bytes takes α + β·b; adding b bytes takes γ·b.

    Args:
        alpha_s: α, seconds per message.
        beta_s_per_byte: β, seconds per byte moved: 1 / bandwidth.
        gamma_s_per_byte: γ, seconds per byte added.

    Raises:
        UserError: a constant that is negative or not finite.

    Source: Hockney 1994, "The communication challenge for MPP: Intel Paragon and Meiko CS-2",
    Parallel Computing 20(3) (α, β); Thakur, Rabenseifner & Gropp 2005, section 3 (γ).
    """

    alpha_s: float
    beta_s_per_byte: float
    gamma_s_per_byte: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (math.isfinite(value) and value >= 0):
                raise UserError(f"a link's constants are finite and not negative: {name}={value}")

    def seconds(self, steps: float, nbytes: float, added: float = 0.0) -> float:
        """Return α·``steps`` + β·``nbytes`` + γ·``added``: messages, bytes moved, bytes added."""
        moved = self.alpha_s * steps + self.beta_s_per_byte * nbytes
        return moved + self.gamma_s_per_byte * added
