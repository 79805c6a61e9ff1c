"""Entries about an error: those whose probe calls what the user's line calls."""

from __future__ import annotations

import re

from dualml.diffs.code import code, package_of
from dualml.diffs.load import catalogue

CALL = re.compile(r"\b(\w+)\(")


def about_error(text: str) -> list[str]:
    """Entries where MindSpore raises, or PyTorch, and that speak of a function that ``text`` calls.

    Args:
        text: code of the line that raised, and of the line where its layer was built.
    """
    called = set(CALL.findall(text))
    return [
        one.name
        for one in catalogue().values()
        if one.kind == "raises"
        for names in [set(CALL.findall(code(one, package_of("mindspore")).get("plain", "")))]
        for said in [re.findall(r"\w+", f"{one.title.en} {one.torch.en} {one.mindspore.en}")]
        if called & names & set(said)
    ]
