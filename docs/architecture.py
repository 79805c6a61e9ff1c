"""Draw `docs/architecture.svg` and `docs/architecture.zh.svg` from the imports of the code.

python docs/architecture.py

Every row is a wing of the core with its packages, in the order of the layers contract in
`pyproject.toml`. A dot in the triangle beside it says that files of this wing import files of the
wing in that column; its size grows with the number of such files.
"""

from __future__ import annotations

import ast
import math
import sys
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
LANGUAGES = ("en", "zh")
#: Sizes of the drawing in pixels.
ROW, LEFT, TOP, NAME, CHIPS, CELL = 64, 16, 84, 118, 600, 30
LINE, CHAR, CHAR_ZH = 19, 6.7, 12.2
STYLE = """
text{font:13px system-ui,-apple-system,"Segoe UI","Noto Sans SC",sans-serif;fill:#1f2933}
.wing{font-weight:600;font-size:15px}.what{font-size:12px;fill:#52606d}
.box{fill:#f5f7fa;stroke:#cbd2d9}.dot{fill:#2f6fab}.grid{stroke:#e4e7eb}
@media(prefers-color-scheme:dark){text{fill:#e4e7eb}.what{fill:#9aa5b1}
.box{fill:#1f2933;stroke:#3e4c59}.dot{fill:#79b0e3}.grid{stroke:#323f4b}}
"""


def read_layers() -> list[str]:
    """Return the wings from top to bottom, as the layers contract lists them."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = config["tool"]["importlinter"]["contracts"]
    [layers] = [c["layers"] for c in contracts if c.get("containers") == ["dualml"]]
    return [str(layer) for layer in layers]


@cache
def count_imports(wings: tuple[str, ...]) -> dict[tuple[str, str], int]:
    """Return (importing wing, imported wing) → number of files that do so."""
    found: dict[tuple[str, str], set[Path]] = {}
    for wing in wings:
        for path in sorted((ROOT / "dualml" / wing).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                for other in imported_wings(node):
                    if other in wings and other != wing:
                        found.setdefault((wing, other), set()).add(path)
    return {pair: len(paths) for pair, paths in found.items()}


def imported_wings(node: ast.AST) -> list[str]:
    """Return the names after ``dualml.`` that an import statement mentions."""
    if isinstance(node, ast.ImportFrom) and not node.level and node.module:
        package, _, rest = node.module.partition(".")
        if package == "dualml":
            return [rest.partition(".")[0]] if rest else [alias.name for alias in node.names]
    if isinstance(node, ast.Import):
        names = [alias.name.split(".") for alias in node.names]
        return [parts[1] for parts in names if parts[0] == "dualml" and len(parts) > 1]
    return []


def list_packages(wing: str) -> list[str]:
    """Return the packages and modules of a wing, those that are packages first."""
    folder = ROOT / "dualml" / wing
    packages = sorted(p.name for p in folder.iterdir() if (p / "__init__.py").exists())
    modules = sorted(p.stem for p in folder.glob("*.py") if p.stem != "__init__")
    return [*packages, *modules]


def wrap(words: Sequence[str], width: float, lang: str) -> list[str]:
    """Break words into lines of at most ``width`` pixels."""
    lines: list[str] = []
    for word in words:
        longer = f"{lines[-1]}  {word}" if lines else word
        if lines and text_width(longer, lang) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def text_width(text: str, lang: str) -> float:
    wide = sum(ord(char) > 0x2E80 for char in text) if lang == "zh" else 0
    return wide * CHAR_ZH + (len(text) - wide) * CHAR


def shown_packages(wing: str, lang: str) -> list[str]:
    """Return the lines of names in a wing's box: two at most."""
    names = list_packages(wing)
    lines = wrap(names, CHIPS - 24, lang)
    while len(lines) > 2:
        names = [*names[:-2], "…"] if names[-1] == "…" else [*names[:-1], "…"]
        lines = wrap(names, CHIPS - 24, lang)
    return lines


def draw(wings: Sequence[str], texts: Mapping[str, str], lang: str) -> str:
    """Return the picture as SVG.

    Args:
        texts: wing → what it is for, in ``lang``.
    """
    imports = count_imports(tuple(wings))
    matrix = LEFT + NAME + CHIPS + 24
    width, height = matrix + CELL * len(wings) + 60, TOP + ROW * len(wings) + LEFT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(texts["title"])}">',
        f"<style>{STYLE}</style>",
        f'<text x="{LEFT}" y="{TOP - 14}" class="what">{escape(texts["title"])}</text>',
        f'<text x="{matrix}" y="18" class="what">{escape(texts["imports"])}</text>',
    ]
    for column, wing in enumerate(wings):
        x = matrix + CELL * column + CELL / 2
        parts.append(
            f'<text x="{x}" y="{TOP - 8}" transform="rotate(-45 {x} {TOP - 8})" class="what">'
            f"{wing}</text>"
        )
    for row, wing in enumerate(wings):
        y = TOP + ROW * row
        parts.append(
            f'<rect x="{LEFT}" y="{y}" width="{NAME + CHIPS}" height="{ROW - 8}" '
            'rx="6" class="box"/>'
        )
        parts.append(f'<text x="{LEFT + 12}" y="{y + 30}" class="wing">{wing}</text>')
        parts.append(
            f'<text x="{LEFT + NAME}" y="{y + 16}" class="what">{escape(texts[wing])}</text>'
        )
        for line, names in enumerate(shown_packages(wing, lang)[:2]):
            parts.append(
                f'<text x="{LEFT + NAME}" y="{y + 33 + 15 * line}" '
                f'style="font-size:12px">{escape(names)}</text>'
            )
        for column in range(row, len(wings)):
            x = matrix + CELL * column + CELL / 2
            if column == row:
                parts.append(f'<rect x="{x - 6}" y="{y + 22}" width="12" height="12" class="box"/>')
            elif number := imports.get((wing, wings[column])):
                # In powers of four, so that few changes redraw the picture.
                radius = 4 + 2 * int(math.log(number, 4))
                parts.append(
                    f'<circle cx="{x}" cy="{y + 28}" r="{radius}" class="dot">'
                    f"<title>{wing} → {wings[column]}</title></circle>"
                )
    return "\n".join([*parts, "</svg>", ""])


def picture_name(lang: str) -> str:
    return f"architecture{'' if lang == 'en' else '.' + lang}.svg"


def render(lang: str) -> str:
    """Return the picture of the code as it is now."""
    texts = tomllib.loads((DOCS / "_words" / f"{lang}.toml").read_text("utf-8"))["architecture"]
    return draw(read_layers(), texts, lang)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS
    for language in LANGUAGES:
        (folder / picture_name(language)).write_text(render(language), "utf-8")
