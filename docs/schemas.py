"""Generate the schemas of requests, and of outputs that are files of a run folder, from their
pydantic models.

``python docs/schemas.py`` writes them again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from dualml.common.files import write_bytes
from dualml.experiment.store.findings import FindingRecord, FindingsRecord
from dualml.experiment.store.largest import LargestRecord
from dualml.experiment.store.manifest import RunRecord
from dualml.experiment.store.verdicts import ComparisonRecord, ParityRecord
from dualml.interface import schemas
from dualml.interface.schemas import schema_id
from dualml.runner.request import RunRequest

DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: Folder of the schemas.
SCHEMA_FOLDER = Path(schemas.__file__).resolve().parent


def record_schemas() -> Mapping[str, dict[str, Any]]:
    """Return name → schema of every record that has one; nothing is written."""
    findings: Any = (list[FindingRecord], ...)
    of_run: dict[str, Any] = {
        "folder": (str, ...),
        "exit_code": (int, ...),
        "findings": findings,
        "parity": (list[ComparisonRecord], ...),
    }
    return {
        "run": schema_of_record(
            "run", "A run: run.json, its verdicts, what was found", RunRecord, of_run
        ),
        "parity": schema_of_record(
            "parity", "The verdicts of a run", ParityRecord, {"findings": findings}
        ),
        "find": schema_of_record("find", "Where and why backends differ", FindingsRecord, {}),
        "request": schema_of_record("request", "A request for a run", RunRequest, {}),
        "largest": schema_of_record("largest", "The largest models that train", LargestRecord, {}),
    }


def schema_of_record(
    name: str, title: str, record: type[BaseModel], more: dict[str, Any]
) -> dict[str, Any]:
    """Return the JSON schema of a pydantic model with the fields in ``more`` and a ``schema`` key,
    without descriptions."""
    from pydantic import create_model

    whole: Any = create_model(record.__name__, __base__=record, **more)
    described = whole.model_json_schema()
    for part in (described, *described.get("$defs", {}).values()):
        part.pop("description", None)  # docstrings are for maintainers
    described["properties"] = {"schema": {"const": schema_id(name)}, **described["properties"]}
    described["required"] = ["schema", *described.get("required", ())]
    return {"$schema": DIALECT, "$id": schema_id(name), **described, "title": title}


def to_json(schema: Mapping[str, Any]) -> str:
    """Format a schema as indented JSON text with a line break at the end."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, schema in record_schemas().items():
        write_bytes(SCHEMA_FOLDER / f"{name}.json", to_json(schema).encode())
