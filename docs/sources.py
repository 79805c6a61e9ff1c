"""Write `docs/sources.md` and `docs/sources.zh.md` from `docs/sources.toml`.

python docs/sources.py
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def read_sources(path: Path = ROOT / "docs" / "sources.toml") -> dict[str, Any]:
    """Read the table: source → its titles and rows."""
    return tomllib.loads(path.read_text("utf-8"))


def test_file_of(seen: str) -> tuple[Path, str] | None:
    """Return the file and the function of ``FOLDER/FILE::NAME``; None for a command."""
    if not (match := re.fullmatch(r"(\w+/\w+)::(\w+)", seen)):
        return None
    return Path("tests", f"{match[1]}.py"), f"test_{match[2]}"


def render_where(where: Sequence[str], lang: str) -> str:
    """Render paths as links relative to `docs/`; an arm stands behind its experiment."""
    parts = []
    for place in where:
        path, _, arm = place.partition(": ")
        if lang == "zh":
            path = localise(path)
        target = path.removeprefix("docs/") if path.startswith("docs/") else f"../{path}"
        label = f"`{arm}`" if arm else f"`{Path(path).name}`"
        parts.append(f"[{label}]({target})")
    return ", ".join(parts)


def localise(path: str) -> str:
    """Return the Chinese twin of a page, or the path itself where there is none."""
    twin = re.sub(r"(\.en)?\.md$", ".zh.md", path)
    return twin if twin != path and (ROOT / twin).exists() else path


def render_row(row: Mapping[str, Any], lang: str) -> str:
    """Render the row of a source in a language."""
    seen = ", ".join(f"`{each}`" for each in row["seen"])
    reason = f" *({row['outside'][lang]})*" if "outside" in row else ""
    cells = (row[lang] + reason, render_where(row["where"], lang), seen, " ".join(row["on"]))
    return f"| {' | '.join(cells)} |"


def render_page(sources: Mapping[str, Any], lang: str) -> str:
    """Render one page of all sources in ``lang`` (``en`` or ``zh``)."""
    words, left = sources["page"][lang], sources["elsewhere"]
    rows = [row for source in sources.values() for row in source.get("rows", ())]
    outside = sum("outside" in row for row in rows)
    lines = [f"# {words['title']}", "", words["other"], "", words["about"], ""]
    lines += [words["count"].format(rows=len(rows), outside=outside), ""]
    head = [f"| {' | '.join(words['head'])} |", "|---|---|---|---|"]
    for name, source in sources.items():
        if name in ("page", "elsewhere"):
            continue
        lines += [f"## {source[lang]}", "", source["about"][lang], "", *head]
        lines += [render_row(row, lang) for row in source["rows"]] + [""]
    lines += [f"## {words['not']}", "", words["not_about"], ""]
    lines += [f"- {row[lang]}" for row in left["items"]]
    return "\n".join(lines) + "\n"


def main() -> int:
    sources = read_sources()
    for lang, name in (("en", "sources.md"), ("zh", "sources.zh.md")):
        (ROOT / "docs" / name).write_text(render_page(sources, lang), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
