"""Build the site: both languages from the pages of the repository and from the program.

    python docs/make.py [--out build/docs] [--links]

Needs the extra ``docs``, no framework and no network. Warnings are errors.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from _ext import api_pages, cli_page, differences, experiment_page, gallery, history, records_page
from _ext.links import Links
from _ext.pages import DOCS, LANGUAGES, ROOT, Page, SiteError, source_pages, tables_of_contents
from _ext.words import words

MADE = (cli_page, experiment_page, records_page, api_pages, differences, gallery, history)
#: Seconds after which a build is aborted.
LIMIT_S = 1800


def gather_pages(root: Path = ROOT) -> dict[str, Page]:
    """Return name → page of the whole site.

    Raises:
        SiteError: two pages have the same name, or one is missing in a language.
    """
    pages: dict[str, Page] = {}
    for page in [*source_pages(root), *(page for module in MADE for page in module.pages())]:
        if page.name in pages:
            raise SiteError(f"two pages are called {page.name}")
        pages[page.name] = page
    return pages


def stage(pages: Mapping[str, Page], lang: str, folder: Path) -> None:
    """Write the files that Sphinx reads; unchanged files are left alone so that Sphinx skips
    them."""
    links = Links(pages)
    texts = {f"{page.name}.md": staged(page, lang, links) for page in pages.values()}
    contents = tables_of_contents({p.name for p in pages.values() if not p.hidden}, lang)
    texts["index.md"] += f"\n{contents}"
    files = {folder / name: text.encode() for name, text in texts.items()}
    files |= {folder / name: path.read_bytes() for path, name in links.pictures.items()}
    for path in folder.rglob("*"):
        if path.is_file() and path not in files:
            path.unlink()
    for path, data in files.items():
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def staged(page: Page, lang: str, links: Links) -> str:
    """Return a page's text as Sphinx reads it."""
    text = links.page(page, lang)
    if page.files and lang != "en" and page.files[lang] == page.files["en"]:
        title, _, rest = text.partition("\n\n")
        text = f"{title}\n\n*{words(lang)['site']['english_only']}*\n\n{rest}"
    return f"---\norphan: true\n---\n\n{text}" if page.hidden else text


def build(out: Path, work: Path, builder: str) -> int:
    """Run Sphinx for all languages at once; return 0 if none of them printed a warning."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        for lang in LANGUAGES:
            command = [sys.executable, "-m", "sphinx", "-b", builder, "-c", DOCS, "-t", lang]
            command += ["-d", work / f"{lang}.doctrees", "-W", "--keep-going", "-n", "-q"]
            running.append(subprocess.Popen([*command, work / lang, out / lang]))
        codes = [process.wait(LIMIT_S) for process in running]
        return next((code for code in codes if code), 0)
    finally:
        for process in running:
            process.kill()
            process.wait()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "docs")
    parser.add_argument("--links", action="store_true", help="check links to the web instead")
    asked = parser.parse_args(arguments)
    work = asked.out.with_name(f"{asked.out.name}.work")
    try:
        pages = gather_pages()
        for lang in LANGUAGES:
            stage(pages, lang, work / lang)
        code = build(asked.out, work, "linkcheck" if asked.links else "html")
    except SiteError as error:
        print(f"docs: {error}", file=sys.stderr)
        return 2
    except subprocess.TimeoutExpired:
        print(f"docs: given up after {LIMIT_S} s", file=sys.stderr)
        return 1
    if code:
        return code
    if not asked.links:
        for lang in LANGUAGES:
            experiment_page.write_schema(asked.out / lang)
            gallery.write(lang, asked.out / lang)
        shutil.copyfile(DOCS / "_templates" / "root.html", asked.out / "index.html")
        print(f"→ {asked.out / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
