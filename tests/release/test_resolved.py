"""The packages that pip and uv would install can be resolved, for every supported Python."""

from __future__ import annotations

import pytest
from archives import bound, uv
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet


def resolved(python: str, *words: str) -> dict[str, str]:
    """Return package → version, resolved in an empty environment."""
    lines = uv(
        "pip",
        "compile",
        "--quiet",
        "--no-header",
        "--no-annotate",
        "--python-version",
        python,
        *words,
        "pyproject.toml",
    ).splitlines()
    pins = (Requirement(line) for line in lines if line and line[0].isalnum())
    return {pin.name: str(pin.specifier).removeprefix("==") for pin in pins}


@pytest.mark.parametrize("python", ["3.11", "3.12"])
def test_both_frameworks_resolve_together(python: str) -> None:
    found = resolved(python, "--extra", "all")
    for name in ("torch", "mindspore"):
        assert found[name] in SpecifierSet(bound(name, name))
    assert found["numpy"] in SpecifierSet("<2")
    if found["torch"].endswith("+cpu"):
        # Without CUDA's own libraries; the one that tells what a GPU uses is small and for all.
        cuda = {name for name in found if name.startswith("nvidia-")} - {"nvidia-ml-py"}
        assert cuda == set()


def test_where_mindspore_has_no_wheels_pytorch_is_installed_alone() -> None:
    found = resolved("3.13", "--extra", "all")
    assert found["torch"] in SpecifierSet(bound("torch", "torch"))
    assert "mindspore" not in found
    assert found["numpy"] in SpecifierSet(">=2")


def test_the_lowest_versions_resolve() -> None:
    found = resolved("3.11", "--resolution", "lowest-direct")
    assert found["numpy"] in SpecifierSet("<2")
