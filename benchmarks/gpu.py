"""Benchmark a GPU from this source tree, without installation, network, or traces left behind.

    make gpu-wheels     where there is a network: packages that the GPU machine may lack
    make gpu            on the GPU machine; ARGS are those of `dualml bench`

Packages that this Python lacks are unpacked from gpu-wheels/ into a temporary folder, beside a
description of dualml that lists its backends, as an installation would. Needs pip, nothing else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WHEELS = ROOT / "gpu-wheels"
PYTHONS = ("3.11", "3.12")
#: Platform tags of compiled wheels (the oldest system they run on), which pip matches exactly.
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
#: Packages that come with PyTorch or are too large to carry.
LARGE = ("numpy", "scipy", "scikit-learn")
#: Packages that the conformance suite needs.
TESTS = ["pytest>=8", "pytest-timeout>=2.3"]
DEFAULT = ["--device", "cuda", "--page", "docs"]


def project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return project


def pip(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", *words, "--disable-pip-version-check"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def wheels() -> None:
    """Download the small packages for both Python versions."""
    light = [need for need in project()["dependencies"] if not need.startswith(LARGE)]
    for python in PYTHONS:
        platforms = [word for name in PLATFORMS for word in ("--platform", name)]
        done = pip(
            "download",
            "--quiet",
            "--only-binary=:all:",
            "--python-version",
            python,
            *platforms,
            "--dest",
            str(WHEELS),
            *light,
            *TESTS,
        )
        if done.returncode:
            sys.exit(f"the wheels for Python {python} cannot be had: {done.stderr.strip()}")
    files = list(WHEELS.glob("*.whl"))
    size = sum(path.stat().st_size for path in files) / 2**20
    print(f"{WHEELS}: {len(files)} wheels, {size:.1f} MiB")


def missing_packages() -> list[str]:
    """Return ``name==version`` of packages that this Python lacks or has too old, as pip resolves
    it."""
    wheels = ["--find-links", str(WHEELS)] if WHEELS.is_dir() else []
    done = pip(
        "install",
        "--dry-run",
        "--quiet",
        "--no-index",
        *wheels,
        "--report",
        "-",
        *project()["dependencies"],
        *TESTS,
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        why = lines[-1] if lines else done.stderr.strip()
        sys.exit(
            f"{sys.executable} lacks packages that dualml needs: {why}\nRun `make gpu-wheels` "
            "where there is a network and bring gpu-wheels/ along; it has all but "
            f"{', '.join(LARGE)}"
        )
    metadata = [one["metadata"] for one in json.loads(done.stdout)["install"]]
    return [f"{one['name']}=={one['version']}" for one in metadata]


def unpack(names: Sequence[str], site: Path) -> None:
    """Install these wheels, and nothing else, into a folder."""
    done = pip(
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-compile",
        "--target",
        str(site),
        "--find-links",
        str(WHEELS),
        *names,
    )
    if done.returncode:
        sys.exit(f"{', '.join(names)} cannot be unpacked: {done.stderr.strip()}")


def described(site: Path) -> None:
    """Describe dualml as `importlib.metadata` describes an installed package: name and entry
    points."""
    sys.path.insert(0, str(ROOT))
    from dualml import __version__

    folder = site / f"dualml-{__version__}.dist-info"
    folder.mkdir(parents=True)
    head = f"Metadata-Version: 2.1\nName: dualml\nVersion: {__version__}\n"
    (folder / "METADATA").write_text(head, "utf-8")
    (folder / "entry_points.txt").write_text("\n".join(entry_points()) + "\n", "utf-8")


def entry_points() -> Iterator[str]:
    for group, points in project()["entry-points"].items():
        yield f"[{group}]"
        yield from (f"{name} = {target}" for name, target in points.items())


def measure(words: Sequence[str]) -> int:
    """Run `dualml bench` with these options and return its exit code."""
    with tempfile.TemporaryDirectory(prefix="dualml-gpu-") as temporary:
        site = Path(temporary)
        if lacking := missing_packages():
            print(f"from gpu-wheels: {', '.join(lacking)}", file=sys.stderr)
            unpack(lacking, site)
        described(site)
        paths = [str(ROOT), str(site), os.environ.get("PYTHONPATH", "")]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        command = [sys.executable, "-m", "dualml", "bench", *(words or DEFAULT)]
        return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode


def main() -> None:
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if here not in PYTHONS:
        sys.exit(
            f"dualml needs Python {' or '.join(PYTHONS)}; {sys.executable} is {here}. "
            "Name another one: make PYTHON=/path/to/python3.12 gpu"
        )
    if sys.argv[1:] == ["wheels"]:
        wheels()
    else:
        sys.exit(measure(sys.argv[1:]))


if __name__ == "__main__":
    main()
