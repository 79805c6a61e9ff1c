"""What ranks do in the tests of engines (see `dualml.launch.ranks`)."""

from __future__ import annotations

from typing import Any


def unasked_clipping(comm: Any, argument: dict[str, Any]) -> dict[str, Any]:
    """DeepSpeed without the line of our file that turns its clipping off."""
    import deepspeed
    from conformance.methods import check

    whole = deepspeed.initialize

    def initialize(*, config: dict[str, Any], **more: Any) -> Any:
        assert config.pop("gradient_clipping") == 0
        return whole(config=config, **more)

    deepspeed.initialize = initialize
    return check(comm, argument)
