"""Sphinx settings for both languages; ``-t zh`` selects the Chinese site. `make.py` calls
Sphinx."""

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))

from _ext.words import words  # noqa: E402

import dualml  # noqa: E402

lang = "zh" if tags.has("zh") else "en"  # type: ignore[name-defined]  # noqa: F821
other = {"en": "zh", "zh": "en"}[lang]

project = "dualml"
release = version = dualml.__version__
language = {"en": "en", "zh": "zh_CN"}[lang]
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "_ext.mathml",
    "_ext.docstrings",
    "_ext.chinese",
]
templates_path = [str(DOCS / "_templates")]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
highlight_language = "none"

# Frameworks need not be installed: their names stand for themselves.
autodoc_mock_imports = ["torch", "torchvision", "mindspore"]
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"exclude-members": "variants, formulas"}
autodoc_type_aliases = {
    name: name for name in ("Array", "Index", "Params", "Samples", "State", "Tensor")
}
napoleon_numpy_docstring = False
# Types of Python, NumPy and the frameworks have no page here.
nitpick_ignore_regex = [(r"py:.*", r".*")]
suppress_warnings = [
    "ref.python",  # a name that two public modules have
    "misc.highlighting_failure",  # examples leave out what `...` stands for
]

html_theme = "furo"
html_title = "dualml"
html_static_path = [str(DOCS / "_static")]
html_css_files = ["site.css"]
html_js_files = ["split-query.js"] if lang == "zh" else []
html_math_renderer = "mathml"
html_copy_source = False
html_show_copyright = False
html_show_sourcelink = False
html_context = {"here": lang, "other": other, "texts": words(lang)["site"]}
linkcheck_timeout = 20
