"""Which side of a comparison is the port: the side whose source a patch changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from dualml.parity.models.model_ref import find_module_file

Letter = Literal["a", "b"]
#: Folders of installed packages.
INSTALLED = ("site-packages", "dist-packages")


def find_port(job: Mapping[str, Any]) -> Letter:
    """Return the letter of the side that is the port: ``b``, unless only the model of side ``a`` is
    in a file of the user's."""
    own, other = (is_users(job["sides"][letter]["model"]) for letter in "ab")
    return "a" if own and not other else "b"


def is_users(model: Mapping[str, Any]) -> bool:
    """Return whether the source of a model, given by its import spec, is a file of the user's, not
    of an installed package; False if it is unknown."""
    file = model_file(model)
    return bool(file) and not {*INSTALLED} & {*Path(file).parts}


def model_file(model: Mapping[str, Any]) -> str:
    """Return the path of the file of a model, given by its import spec; empty if it is unknown."""
    file = model.get("file")
    if file is None and (name := model.get("module")):
        file = find_module_file(str(name))
    return str(file or "")


def reverse_cause(cause: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a cause, given as a dict, as if the two sides were exchanged: what the first
    one does that the second one does not."""
    alterations = [reverse_alteration(one) for one in cause["alterations"]]
    return {**cause, "alterations": alterations, "place": cause["other"], "other": cause["place"]}


def reverse_alteration(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a mutation, given as a dict, with its values exchanged: the new and the old
    value of a setting, or the names of two functions if one stands in place of the other."""
    if one["action"] in ("function", "instead") and isinstance(one["value"], str):
        return {**one, "operation": one["value"], "value": one["operation"]}
    return {**one, "value": one["old"], "old": one["value"]}
