"""Chinese pages: join the lines of a paragraph without a space between them, and translate the
theme's own texts."""

from __future__ import annotations

import logging
import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.locale import get_translator
from sphinx.transforms import SphinxTransform

WIDE = r"[\u2014\u2018-\u201d\u2026\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]"
BETWEEN = re.compile(rf"(?<={WIDE})\n(?={WIDE})")


#: Texts of the theme that Sphinx does not translate into Chinese.
THEME = {
    "Next": "下一页",
    "Previous": "上一页",
    "Home": "首页",
    "On this page": "本页内容",
    "Back to top": "回到顶部",
    "Made with ": "由以下软件生成：",
}


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_transform(JoinChineseLines)
    app.connect("builder-inited", translate)
    logging.getLogger("jieba").setLevel(logging.WARNING)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def translate(app: Sphinx) -> None:
    """Install the translations of the theme's texts if the language is Chinese."""
    if app.config.language.startswith("zh"):
        get_translator()._catalog.update(THEME)  # type: ignore[attr-defined]


class JoinChineseLines(SphinxTransform):
    """Joins the lines of Chinese paragraphs without a space between them."""

    default_priority = 800

    def apply(self, **arguments: Any) -> None:
        if not self.config.language.startswith("zh"):
            return
        for block in self.document.findall(nodes.TextElement):
            if isinstance(block, nodes.FixedTextElement | nodes.Inline):
                continue
            texts = list(block.findall(nodes.Text))
            ends = ["", *texts, ""]
            for before, text, after in zip(ends, texts, ends[2:], strict=False):
                framed = f"{before[-1:]}{text}{after[:1]}"
                joined = BETWEEN.sub("", framed)
                if joined != framed:
                    whole = joined[len(before[-1:]) : len(joined) - len(after[:1])]
                    text.parent.replace(text, nodes.Text(whole))
