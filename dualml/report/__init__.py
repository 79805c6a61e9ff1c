"""Render run folders as a page: HTML, Markdown and figures, in English and Chinese.

Only files are read; no framework is imported, so a report can be made where none is installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["render"]


def render(
    folders: Sequence[Path], out: Path | None = None, lang: str = "en", force: bool = False
) -> list[Path]:
    """Write ``report.html``, ``report.md`` and ``figures/*.svg``.

    Args:
        folders: run folders; several are shown side by side if they were made from one plan.
        out: the output folder; the first run folder when omitted.
        lang: ``en`` or ``zh``.
        force: accept plans that were changed after they were made; the page says so.

    Returns:
        The files written, the HTML page first.

    Raises:
        UserError: no run folder, a damaged ``run.json``, an unknown format or language, plans
            that differ, or a changed plan without ``force``.
    """
    from dualml.common.words import Messages
    from dualml.experiment.store.load import load
    from dualml.experiment.store.report import write_report
    from dualml.report.blocks import walk
    from dualml.report.compose import compose
    from dualml.report.draw import standalone
    from dualml.report.figure import Figure
    from dualml.report.page.html import render_html
    from dualml.report.page.markdown import render_markdown

    words, run = Messages(lang), load([Path(folder) for folder in folders], force=force)
    page = compose(run, words)
    figures = {b.name: standalone(b) for b in walk(page.blocks) if isinstance(b, Figure)}
    target = run.folders[0] if out is None else Path(out)
    return write_report(target, render_html(page), render_markdown(page), figures)
