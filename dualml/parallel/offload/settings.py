"""Settings of offloading, as an arm requests them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from dualml.common.errors import UserError
from dualml.common.strict_model import StrictModel

Place = Literal["device", "host", "disk"]
#: Kinds of data that can be offloaded.
KINDS: tuple[Literal["state", "weights"], ...] = ("state", "weights")


class Offload(StrictModel):
    """Placement of ``state`` (of the optimizer) and ``weights`` between updates: on the ``device``,
    in ``host`` memory, or on ``disk``.

    ``budget_bytes``: limit on host memory, buffers included; 0 is no limit. ``overlap``: data on
    disk is read before it is needed, and written while training goes on.
    """

    state: Place = "device"
    weights: Place = "device"
    budget_bytes: Annotated[int, Field(ge=0)] = 0
    overlap: bool = True

    @model_validator(mode="after")
    def _moves_something(self) -> Offload:
        """Return the settings; raise `UserError` if they offload nothing, or turn off ``overlap``
        with nothing on disk."""
        places = {self.state, self.weights}
        if places == {"device"}:
            raise UserError(
                "offload leaves everything on the device; set state = host or disk, "
                "weights = host or disk, or leave offload out"
            )
        if not self.overlap and "disk" not in places:
            raise UserError(
                "overlap = false is for what is on disk, which is read ahead; host "
                "memory is copied when it is needed: leave overlap out"
            )
        return self

    def is_offloaded(self, kind: Literal["state", "weights"]) -> bool:
        """Return whether ``state`` or ``weights`` are kept outside the device."""
        return self.place(kind) != "device"

    def place(self, kind: Literal["state", "weights"]) -> Place:
        """Return where ``state`` or ``weights`` are kept: ``device``, ``host`` or ``disk``."""
        return self.state if kind == "state" else self.weights

    @property
    def buffer_count(self) -> int:
        """Number of host buffers for each kind on disk: one in use and, with overlap, one to read
        into or write from."""
        return 2 if self.overlap else 1
