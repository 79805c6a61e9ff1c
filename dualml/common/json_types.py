"""Names for JSON whose keys no Python type fixes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: A JSON object whose keys are open to Python: what ``--json`` prints of a result (its keys are in
#: the JSON schemas of `dualml.interface.schemas`), a table of a TOML file before it is validated,
#: the message of a rank. A file of a run folder has a record instead (`dualml.experiment.store`).
JsonObject = dict[str, Any]
#: A `JsonObject` that is only read, such as ``{"name": "sgd", "lr": 0.1}``, from which a registry
#: makes an object.
JsonMapping = Mapping[str, Any]
