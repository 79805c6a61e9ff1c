"""Check a commit message: ``area: imperative summary`` of at most 72 characters, and a body.

    python .ci/commit_message.py FILE

`.pre-commit-config.yaml` runs it as a commit-msg hook: ``pre-commit install -t commit-msg``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_SUMMARY = 72
SUMMARY = re.compile(r"[a-z0-9][\w./, -]*: \S")
#: What git writes by itself.
GENERATED = re.compile(r"(Merge|Revert|fixup!|squash!|amend!) ")
#: First words of a summary that is no imperative.
NOT_IMPERATIVE = re.compile(r"(\w+ed|\w+ing|\w+[^s]s)$")
IMPERATIVES = {"embed", "feed", "need", "seed", "speed", "shed", "bring", "ring", "string"}


def faults(message: str) -> Iterator[str]:
    """Yield what is wrong with a message, comments of git left out."""
    lines = [line.rstrip() for line in message.splitlines() if not line.startswith("#")]
    summary = lines[0] if lines else ""
    if GENERATED.match(summary):
        return
    if len(summary) > MAX_SUMMARY:
        yield f"the summary has {len(summary)} characters; use at most {MAX_SUMMARY}"
    if not SUMMARY.match(summary):
        yield "the summary names no area; write `area: what the commit does`"
    elif not is_imperative(first := summary.partition(": ")[2].split()[0]):
        yield f"the summary begins with {first!r}; use the imperative, such as `add` or `fix`"
    if len(lines) > 1 and lines[1]:
        yield "the line after the summary is not empty"
    if not any(lines[2:]):
        yield "there is no body; say why the change is made"


def is_imperative(word: str) -> bool:
    """Whether a first word can be an imperative, by its ending."""
    lower = word.lower()
    return lower in IMPERATIVES or not NOT_IMPERATIVE.match(lower)


def main() -> int:
    found = list(faults(Path(sys.argv[1]).read_text("utf-8")))
    for fault in found:
        print(f"commit message: {fault}", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
