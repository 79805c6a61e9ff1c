"""What several of these files set up alike."""

from __future__ import annotations

import pytest

from dualml.report import style


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made, but not laid out: that takes most of the time."""
    monkeypatch.setattr(style, "svg", lambda made, name: f"<svg><title>{name}</title></svg>")
