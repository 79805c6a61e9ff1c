"""Pages with tables of published figures match the code."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from docs_scripts import DOCS, load_script

from dualml.common.errors import UserError
from dualml.common.words import LANGUAGES, Messages
from dualml.planning.cost.published import curves
from dualml.planning.cost.published import median_and_max as collective_summary
from dualml.report.draw import standalone
from dualml.report.published import figure

TABLES = load_script("tables")


def text_outside_tables(name: str, lang: str) -> str:
    page = TABLES.PAGES[name]
    text = TABLES.page_path(name, lang).read_text("utf-8")
    return re.sub(f"{page.begin}.*?{page.end}", "", text, flags=re.S)


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("name", TABLES.PAGES)
def test_the_page_has_the_tables_of_the_code(name: str, lang: str) -> None:
    """The tables on the pages are current; ``python docs/tables.py`` rewrites them."""
    text = TABLES.page_path(name, lang).read_text("utf-8")
    assert TABLES.with_tables(text, name, lang) == text
    with pytest.raises(UserError, match="has no"):
        TABLES.with_tables("# nothing", name, lang)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_figure_is_the_one_that_is_drawn_now(lang: str) -> None:
    drawn = standalone(figure(Messages(lang)))
    assert (DOCS / TABLES.figure_name(lang)).read_text("utf-8") == drawn


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_text_names_the_errors_that_the_tables_have(lang: str) -> None:
    for name in ("fugaku-rabenseifner", "marenostrum-ring"):
        for share in collective_summary([*curves()[name].errors_by_part().ranks.values()]):
            assert f"{math.ceil(100 * share)} %" in text_outside_tables("cost-measured", lang)


def test_a_folder_is_written(tmp_path: Path) -> None:
    for name in TABLES.PAGES:
        for lang in LANGUAGES:
            page = TABLES.PAGES[name]
            TABLES.page_path(name, lang, tmp_path).write_text(f"a\n{page.begin}{page.end}\nb\n")
    TABLES.write_tables(tmp_path)
    assert len(list(tmp_path.glob("*.svg"))) == len(LANGUAGES)
    assert "torchvision" in (tmp_path / "install.md").read_text("utf-8")
