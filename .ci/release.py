"""``python .ci/release.py vX.Y.Z`` prints the release notes of a version: its section of
CHANGELOG.md.

It refuses, in one line and with exit code 2, a tag that is not the version of this checkout, or one
without a section.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def notes(tag: str, changelog: str, code: str) -> str:
    """Return the section of the tag's version.

    Args:
        changelog: text of CHANGELOG.md, in the format of Keep a Changelog.
        code: text of dualml/common/version.py, which has the version (a test checks
            CITATION.cff's).

    Raises:
        ValueError: the tag is not the version, or has no section.
    """
    found = re.search(r'^__version__ = "(.+)"$', code, re.M)
    version = found[1] if found else ""
    if tag != f"v{version}":
        raise ValueError(f"the tag is {tag}, but dualml/common/version.py says {version}")
    section = re.search(
        rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## \[|\Z)", changelog, re.M | re.S
    )
    if not section or not section[1].strip():
        raise ValueError(f"CHANGELOG.md has no section [{version}]")
    return section[1].strip() + "\n"


if __name__ == "__main__":
    texts = (
        (ROOT / name).read_text("utf-8") for name in ("CHANGELOG.md", "dualml/common/version.py")
    )
    try:
        print(notes(*sys.argv[1:2] or [""], *texts), end="")
    except ValueError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
