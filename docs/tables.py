"""Write the tables of published figures into `docs/install.md`, `docs/cost.md` and `docs/plan.md`.

python docs/tables.py [FOLDER]

Each page has its tables between two comments; both languages are written.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualml.common.files import write_bytes
from dualml.common.words import LANGUAGES, Messages, numbers
from dualml.interface.doctor.fit import published_releases as releases
from dualml.report import published as collective_tables
from dualml.report.blocks import Cells, Column, Table
from dualml.report.draw import standalone
from dualml.report.page.markdown import replace_between
from dualml.report.page.markdown import table as markdown
from dualml.report.plan import published as plan_tables

DOCS = Path(__file__).resolve().parent
#: Table of releases → its columns, with the field of a row if its name differs.
RELEASES: Mapping[str, Mapping[str, str]] = {
    "torch": {"torch": "version", "torchvision": "", "python": "", "cuda": "", "sources": ""},
    "cuda": {
        "cuda": "version",
        "driver": "",
        "toolkit_driver": "",
        "capability": "",
        "sources": "",
    },
    "mindspore": {"mindspore": "version", "python": "", "cann": "", "hdk": "driver", "sources": ""},
}


@dataclass(frozen=True)
class Page:
    """A page with a block of tables.

    Attributes:
        mark: name in the two comments around the block.
        render: language → the block without the comments.
    """

    mark: str
    render: Callable[[str], str]

    @property
    def begin(self) -> str:
        return f"<!-- {self.mark}: begin -->"

    @property
    def end(self) -> str:
        return f"<!-- {self.mark}: end -->"


def render_tables(tables: Iterator[Table]) -> str:
    """Render tables in Markdown, one after the other."""
    return "\n\n".join(f"**{table.caption}**\n\n{markdown(table)}" for table in tables)


def render_releases(lang: str) -> str:
    """Render which releases of PyTorch, CUDA, MindSpore and CANN fit together, with sources."""
    texts = tomllib.loads((DOCS / "_words" / f"{lang}.toml").read_text("utf-8"))["combinations"]
    sources = [
        f"- `{name}`: " + texts["source"].format(**row)
        for name, row in releases()["sources"].items()
    ]
    shown = [render_tables(release_tables(texts)), f"**{texts['sources']}**", "\n".join(sources)]
    return "\n\n".join(shown)


def release_tables(texts: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the tables of framework releases."""
    for name, columns in RELEASES.items():
        heads = [Column(key, texts["column"][key]) for key in columns]
        rows: list[Cells] = [
            [render_cell(row.get(field or key)) for key, field in columns.items()]
            for row in releases()[name]
        ]
        yield Table(name, texts["table"][name], heads, rows)


def render_cell(value: Any) -> str:
    if value is None:
        return numbers.NO_VALUE
    return ", ".join(value) if isinstance(value, list) else str(value)


def render_collectives(lang: str) -> str:
    """Render published all-reduces beside the cost model's predictions, with their figure."""
    words = Messages(lang)
    figure = (
        f"![{words('published.figure_alt')}]({figure_name(lang)})\n\n{words('published.figure')}"
    )
    return f"{figure}\n\n{render_tables(collective_tables.tables(words))}"


def figure_name(lang: str) -> str:
    return f"cost-published{'' if lang == 'en' else '.' + lang}.svg"


def render_plans(lang: str) -> str:
    """Render published training runs beside the planner's predictions."""
    return render_tables(plan_tables.tables(Messages(lang)))


PAGES = {
    "install": Page("combinations", render_releases),
    "cost": Page("published", render_collectives),
    "plan": Page("tables", render_plans),
}


def page_path(name: str, lang: str, folder: Path = DOCS) -> Path:
    return folder / (f"{name}.md" if lang == "en" else f"{name}.{lang}.md")


def with_tables(text: str, name: str, lang: str) -> str:
    """Return the text of a page with its tables as they are now.

    Raises:
        UserError: the page lacks the comments around them.
    """
    page = PAGES[name]
    block = "\n\n".join([page.begin, page.render(lang), page.end])
    return replace_between(text, page.begin, page.end, block)


def write_tables(folder: Path) -> None:
    """Write every page's tables, and the figure of `docs/cost.md`, in both languages."""
    for lang in LANGUAGES:
        for name in PAGES:
            path = page_path(name, lang, folder)
            write_bytes(path, with_tables(path.read_text("utf-8"), name, lang).encode())
        figure = standalone(collective_tables.figure(Messages(lang)))
        write_bytes(folder / figure_name(lang), figure.encode())


if __name__ == "__main__":
    write_tables(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
