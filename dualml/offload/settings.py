"""What of a model is kept elsewhere, and where, as an arm asks for it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from dualml.errors import UserError
from dualml.strict import Strict

Place = Literal["device", "host", "disk"]
#: What can be kept elsewhere.
KINDS: tuple[Literal["state", "weights"], ...] = ("state", "weights")


class Offload(Strict):
    """Where ``state`` (of the optimizer) and ``weights`` are kept from update to update: on the
    ``device``, in ``host`` memory, or on ``disk``. ``budget_bytes``: at most so many in host
    memory, buffers included; 0 is no bound. ``overlap``: what is on disk is read before it is
    needed, and written behind the update that changed it.
    """

    state: Place = "device"
    weights: Place = "device"
    budget_bytes: Annotated[int, Field(ge=0)] = 0
    overlap: bool = True

    @model_validator(mode="after")
    def _moves_something(self) -> Offload:
        places = {self.state, self.weights}
        if places == {"device"}:
            raise UserError("offload leaves everything on the device; set state = host or disk, "
                            "weights = host or disk, or leave offload out")  # fmt: skip
        if not self.overlap and "disk" not in places:
            raise UserError("overlap = false is for what is on disk, which is read ahead; host "
                            "memory is copied when it is needed: leave overlap out")  # fmt: skip
        return self

    def away(self, kind: Literal["state", "weights"]) -> bool:
        """Whether it is kept elsewhere."""
        return self.place(kind) != "device"

    def place(self, kind: Literal["state", "weights"]) -> Place:
        return self.state if kind == "state" else self.weights

    @property
    def buffers(self) -> int:
        """Of each kind on disk, in host memory: one to use, one to read into or write from."""
        return 2 if self.overlap else 1
