"""Make the notebooks of the labs, executed: one source each, two languages.

    python examples/notebooks/build.py [lab1 …] [--lang en|zh] [--out build/notebooks]

A source, `lab1.py`, has its cells in jupytext's percent format. Cells marked `lang="en"` and
`lang="zh"` go into `lab1.ipynb` and `lab1.zh.ipynb`; the others, all code among them, into both.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
LANGUAGES = ("en", "zh")
SOURCES = sorted(path.stem for path in HERE.glob("*.py") if path != Path(__file__))
#: Seconds after which a notebook is considered hung; a whole one takes a minute.
CELL_S = 600
#: tqdm's message when there are no widgets.
QUIET = "ignore:IProgress not found"


def name(source: str, lang: str) -> str:
    """Return the file name of a notebook in a language."""
    return f"{source}.ipynb" if lang == "en" else f"{source}.{lang}.ipynb"


def notebook(source: str, lang: str) -> nbformat.NotebookNode:
    """Return the cells of one language, not executed; in code, `LANG` is that language."""
    book = jupytext.read(HERE / f"{source}.py")
    book.cells = [cell for cell in book.cells if cell.metadata.pop("lang", lang) == lang]
    for number, cell in enumerate(book.cells):
        cell.id = f"cell-{number}"  # else drawn at random
        cell.source = cell.source.replace('LANG = "en"', f'LANG = "{lang}"')
    book.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return book


def build(source: str, lang: str, out: Path) -> Path:
    """Execute one notebook in the folder `out` and write it there.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed; the text is its traceback.
    """
    out.mkdir(parents=True, exist_ok=True)
    book = notebook(source, lang)
    client = NotebookClient(
        book,
        timeout=CELL_S,
        startup_timeout=CELL_S,
        resources={"metadata": {"path": str(out)}},
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],  # not that its sockets are of the loopback
    )
    # Figures go into the notebook, whatever backend of Matplotlib was chosen outside.
    outside = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    client.execute(env={**outside, "PYTHONWARNINGS": QUIET})
    path = out / name(source, lang)
    nbformat.write(book, path)
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sources", nargs="*", metavar="lab1", help=", ".join(SOURCES))
    parser.add_argument("--lang", choices=LANGUAGES, action="append")
    parser.add_argument("--out", type=Path, default=Path("build/notebooks"))
    asked = parser.parse_args()
    if unknown := set(asked.sources) - set(SOURCES):
        parser.error(f"no notebook {', '.join(sorted(unknown))}; there are {', '.join(SOURCES)}")
    for each in asked.sources or SOURCES:
        for lang in asked.lang or LANGUAGES:
            print(build(each, lang, asked.out), flush=True)
