"""The one look of all figures: colours for light and dark, strokes, letters.

Marks are coloured by classes (``c-blue`` sets ``color``, marks use ``currentColor``), so that the
same drawing is right on a white page, on a dark one and on paper.
"""

from __future__ import annotations

from importlib.resources import files

FONTS = (
    "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', 'PingFang SC', 'Microsoft YaHei', "
    "'Noto Sans CJK SC', 'Noto Sans SC', 'DejaVu Sans', sans-serif"
)
LETTER, SMALL = 12.5, 11.5  # pixels

#: Name → on white, on black. The first seven: Okabe & Ito 2008, "Color Universal Design", told
#: apart under every common colour blindness.
COLORS = {
    "blue": ("#0072B2", "#4AA8E0"),
    "vermilion": ("#D55E00", "#F0853C"),
    "green": ("#009E73", "#2FC297"),
    "pink": ("#CC79A7", "#E09AC2"),
    "orange": ("#E69F00", "#EFB53F"),
    "sky": ("#56B4E9", "#86CCF2"),
    "grey": ("#5B5B5B", "#A8A8A8"),
    "wine": ("#882255", "#C96A97"),
    "olive": ("#999933", "#BCBC5C"),
    "indigo": ("#332288", "#9389E6"),
    # What is no competitor: ink, axes, what is behind.
    "ink": ("#333333", "#D8D8D8"),
    "black": ("#111111", "#F2F2F2"),
    "muted": ("#757575", "#9C9C9C"),
    "line": ("#9A9A9A", "#6F7378"),
    "grid": ("#E3E3E3", "#33373B"),
    "strip": ("#F1F1F1", "#26292D"),
    "card": ("#F7F7F5", "#212428"),
    "paper": ("#FFFFFF", "#16181B"),
    "onfill": ("#FFFFFF", "#FFFFFF"),
    # Where the time of an update goes.
    "steel": ("#7A9CC6", "#7A9CC6"),
    "navy": ("#44638F", "#46659C"),
    "amber": ("#E3B23C", "#D6A632"),
    "brick": ("#B5473C", "#CF6458"),
    "silver": ("#C9C9C9", "#6E7276"),
    "pale": ("#C5D0E0", "#55637A"),
    # Passes forwards and backwards, and what else fills a rank's time.
    "forward": ("#2E6DA4", "#4A90CC"),
    "backward": ("#C9651B", "#DE8440"),
    "plum": ("#6F5AA0", "#A592D8"),
    "lilac": ("#A897C4", "#A897C4"),
    "sand": ("#DDD3BC", "#7D745E"),
    "sage": ("#86B5A5", "#7FAF9F"),
    "ash": ("#8E8E8E", "#8E8E8E"),
}
#: For arms and others that have no colour of their own, in this order.
CYCLE = ("blue", "vermilion", "green", "pink", "orange", "sky", "grey", "wine", "olive", "indigo")

#: Name → width in pixels, dashes, opacity. Lines that coincide stay visible: dashes over a wide
#: pale band.
STROKES: dict[str, tuple[float, str, float]] = {
    "wide": (4.2, "", 0.42),
    "dashes": (2.0, "6 3", 1.0),
    "dots": (2.3, "2 3", 1.0),
    "dash-dot": (1.9, "8 3 1.5 3", 1.0),
    "hair": (1.2, "", 1.0),
    "long": (1.6, "12 4", 1.0),
    "solid": (1.9, "", 1.0),
    "line": (1.3, "", 1.0),
    "fine-dashes": (1.4, "4 3", 1.0),
    "fine-dots": (1.2, "1.5 2", 1.0),
    "faint": (0.9, "", 0.22),
    "bars": (1.4, "", 0.75),
    "axis": (1.0, "", 1.0),
    "patch": (6.0, "", 1.0),
}


def css(*, page: bool = True) -> str:
    """The rules for figures, inside a file of their own or in a page: with their size there and
    what the script makes use of."""
    rules = [
        f"svg.fig {{ font: {LETTER:g}px {FONTS}; }}",
        ".fig text { fill: currentColor; } .fig path { fill: none; stroke: currentColor; }",
        f".fig .small {{ font-size: {SMALL:g}px; }}",
        ".fig .bold { font-weight: 600; } .fig .italic { font-style: italic; }",
        ".fig .halo { paint-order: stroke; stroke-width: 4px; stroke-linejoin: round; }",
        ".fig rect { fill: currentColor; } .fig .hit { fill: none; }",
        ".fig .fill { fill: currentColor; stroke: none; } .fig .band { fill-opacity: .12; }",
        *((files("dualml.report.draw") / "page.css").read_text().splitlines() if page else ()),
    ]
    for name, (width, dashes, alpha) in STROKES.items():
        look = f"stroke-dasharray: {dashes or 'none'}; stroke-opacity: {alpha:g}"
        rules.append(f".fig .k-{name} {{ stroke-width: {width:g}px; {look}; }}")
    dark = "\n".join(f"  {rule}" for rule in _colors(1))
    dark = f"@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}"
    return "\n".join([*rules, *_colors(0), dark]) + "\n"


def _colors(scheme: int) -> list[str]:
    paper, ink, line = (COLORS[name][scheme] for name in ("paper", "ink", "line"))
    return [
        *(f".fig .c-{name} {{ color: {pair[scheme]}; }}" for name, pair in COLORS.items()),
        f"svg.fig {{ color: {ink}; }} .fig .paper {{ fill: {paper}; }}",
        f".fig .halo, .fig .m rect {{ stroke: {paper}; }} .fig .m rect {{ stroke-width: .5px; }}",
        ".fig .m .band { stroke: none; }",
        f".fig .m .frame {{ stroke: {line}; stroke-width: 1px; }}",
        f".fig .swatch {{ stroke: {line}; stroke-opacity: .5; }}",
    ]
