"""Examine one backend in this process, then end it: ``python -m dualml.interface.doctor.probe
NAME``.

Every finding is printed as soon as it is made, so that a framework that crashes or hangs loses none
of the earlier ones. The environment is that of a worker.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Iterator

from dualml.backend import BackendInfo, backends
from dualml.common.errors import UserError
from dualml.interface.doctor.finding import DoctorFinding

#: Prefix of our lines, because frameworks also print to stdout.
PREFIX = "@dualml "


def print_message(kind: str, value: object) -> None:
    """Print one message of the probe, ``{kind: value}``, as JSON on a line of its own after
    `PREFIX`."""
    print(f"\n{PREFIX}{json.dumps({kind: value})}", flush=True)


def examine(info: BackendInfo) -> Iterator[DoctorFinding]:
    """Run the backend's own examination, ``<package>.doctor:examine``, or just import the framework
    and open the CPU; yield its findings. Errors of the framework pass."""
    if importlib.util.find_spec(f"{info.package}.doctor"):
        yield from importlib.import_module(f"{info.package}.doctor").examine()
        return
    version = str(getattr(importlib.import_module(info.framework), "__version__", "?"))
    info.create("cpu")
    yield DoctorFinding(info.framework, "ok", version, version)


def main(name: str) -> None:
    """Examine a backend, print the findings, whether it works or its error, and end the process
    with exit code 0 in either case."""
    info = backends()[name]
    try:
        with contextlib.suppress(UserError):  # problems are examined below
            os.environ.update(info.environ(0))
        for finding in examine(info):
            print_message("finding", vars(finding))
        print_message("works", True)
    except BaseException as error:  # whatever a framework raises is a finding
        first = (str(error).strip().splitlines() or [""])[0]
        print_message("error", f"{type(error).__name__}: {first}"[:300])
    sys.stdout.flush()
    os._exit(0)  # some frameworks crash on exit, which does not matter here


if __name__ == "__main__":
    main(sys.argv[1])
