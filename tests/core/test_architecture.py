"""The page on the architecture: its picture is the code's, and its paths exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = {"en": "architecture.md", "zh": "architecture.zh.md"}
PACKAGES = ("dualml", "dualml_torch", "dualml_ms")


@pytest.fixture(scope="module")
def architecture() -> ModuleType:
    spec = importlib.util.spec_from_file_location("architecture", DOCS / "architecture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("lang", PAGES)
def test_the_picture_is_drawn_from_the_imports_of_today(
    architecture: ModuleType, lang: str
) -> None:
    drawn = (DOCS / architecture.picture_name(lang)).read_text("utf-8")
    assert drawn == architecture.render(lang), "the picture is old: python docs/architecture.py"
    assert architecture.picture_name(lang) in (DOCS / PAGES[lang]).read_text("utf-8")


def test_the_wings_are_the_folders(architecture: ModuleType) -> None:
    wings = architecture.read_layers()
    folders = {p.name for p in (ROOT / "dualml").iterdir() if (p / "__init__.py").is_file()}
    assert folders == set(wings)
    assert len(wings) <= 12


@pytest.mark.parametrize("lang", PAGES)
def test_paths_on_the_page_exist(lang: str) -> None:
    text = (DOCS / PAGES[lang]).read_text("utf-8")
    spans = [span for span in re.findall(r"`([^`\s]+/[^`\s]*)`", text) if "{" not in span]
    assert spans
    roots = [ROOT, *(ROOT / package for package in PACKAGES)]
    lost = [span for span in spans if not any((root / span).exists() for root in roots)]
    assert lost == []
