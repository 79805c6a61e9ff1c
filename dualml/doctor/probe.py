"""``python -m dualml.doctor.probe NAME``: examine one backend in this process, then end it.

Every finding is printed as it is made, so that a framework that crashes or hangs takes none of
the earlier ones with it. The environment is the one a worker would get.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Iterator

from dualml.backend import BackendInfo, backends
from dualml.doctor.finding import Finding
from dualml.errors import UserError

#: Frameworks print to stdout as they please; our lines start with this.
PREFIX = "@dualml "


def say(kind: str, value: object) -> None:
    print(f"\n{PREFIX}{json.dumps({kind: value})}", flush=True)


def examine(info: BackendInfo) -> Iterator[Finding]:
    """The backend's own examination, ``<package>.doctor:examine``, or a bare import without one."""
    if importlib.util.find_spec(f"{info.package}.doctor"):
        yield from importlib.import_module(f"{info.package}.doctor").examine()
        return
    version = str(getattr(importlib.import_module(info.framework), "__version__", "?"))
    info.create("cpu")
    yield Finding(info.framework, "ok", version, version)


def main(name: str) -> None:
    info = backends()[name]
    try:
        with contextlib.suppress(UserError):  # what is amiss is examined now
            os.environ.update(info.environ(0))
        for finding in examine(info):
            say("finding", vars(finding))
        say("works", True)
    except BaseException as error:  # whatever a framework raises is a finding
        first = (str(error).strip().splitlines() or [""])[0]
        say("error", f"{type(error).__name__}: {first}"[:300])
    sys.stdout.flush()
    os._exit(0)  # some frameworks crash on the way out, which says nothing about their work


if __name__ == "__main__":
    main(sys.argv[1])
