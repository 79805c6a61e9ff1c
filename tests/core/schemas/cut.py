"""Make the schemas of this folder from the published ones: ``python tests/core/schemas/cut.py DIR``

DIR holds a clone of each repository of ``sources.toml``, named like the repository. These parts are
removed: descriptions, examples, defaults and CEL rules; for custom resources everything but the
newest version's schema, and its status; for Kubernetes' OpenAPI everything but the listed ``kinds``
and their references. Nothing is added or changed.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
CUT = ("description", "example", "examples", "default", "x-kubernetes-validations", "status")
REFERS = "#/definitions/"


def strip_unread_keys(value: Any, names: bool = False) -> Any:
    """Remove the parts of a schema that no validator reads.

    Args:
        names: whether the keys of ``value`` are users' names instead of schema keywords.
    """
    if isinstance(value, dict):
        return {
            key: strip_unread_keys(
                inner, key in ("properties", "definitions", "patternProperties") and not names
            )
            for key, inner in value.items()
            if names or key not in CUT
        }
    return [strip_unread_keys(inner) for inner in value] if isinstance(value, list) else value


def resource(text: str) -> Any:
    """Return the schema of a custom resource."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    schema = yaml.load(text, Loader=loader)["spec"]["versions"][-1]["schema"]["openAPIV3Schema"]
    schema["properties"].pop("status", None)
    return strip_unread_keys(schema)


def core(text: str, kinds: list[str]) -> Any:
    """Return the definitions of kinds, and everything they refer to."""
    known = json.loads(text)["definitions"]
    waiting, taken = [f"io.k8s.api.core.v1.{kind}" for kind in kinds], dict[str, Any]()
    while waiting:
        name = waiting.pop()
        if name not in taken:
            taken[name] = strip_unread_keys(known[name])
            waiting += re.findall(rf'"{REFERS}([^"]+)"', json.dumps(taken[name]))
    return {"definitions": dict(sorted(taken.items()))}


def published(clones: Path, source: dict[str, Any]) -> str:
    """Return the published file; raise `SystemExit` if its checksum differs."""
    clone = clones / source["repository"].rpartition("/")[2]
    show = ["git", "-C", str(clone), "show", f"{source['commit']}:{source['path']}"]
    content = subprocess.run(show, check=True, capture_output=True).stdout
    if (found := hashlib.sha256(content).hexdigest()) != source["sha256"]:
        raise SystemExit(f"{source['path']} has SHA-256 {found}, not {source['sha256']}")
    return content.decode("utf-8")


def main(clones: Path) -> None:
    for name, source in tomllib.loads((HERE / "sources.toml").read_text("utf-8")).items():
        text = published(clones, source)
        if "kinds" in source:
            schema = core(text, source["kinds"])
        else:
            schema = (
                strip_unread_keys(json.loads(text))
                if source["path"].endswith(".json")
                else resource(text)
            )
        content = json.dumps(schema, separators=(",", ":"), ensure_ascii=False) + "\n"
        (HERE / f"{name}.json").write_text(content, "utf-8")
        print(f"{name}: {len(text):,} -> {len(content):,}")
        print(f"    {hashlib.sha256(content.encode()).hexdigest()}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
