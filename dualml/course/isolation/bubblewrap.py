"""Isolation by bubblewrap, for systems on which only that program may make namespaces.

All processes of a check run inside, including a server that is started for it and first imports the
framework. Of dualml only the files that this server imports are visible, with the data of the same
name beside them; they are no solutions.
The files of the framework's own optimizers are needed, too, so that a student's code can read and
copy them here.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from dualml.common.machine import python_argv
from dualml.course.isolation.root import HOME, QUOTA, Contents
from dualml.launch.process import IMPORT_S

#: Program that prints, as JSON, the result of `find_contents` and the imported files of dualml.
DESCRIBE = """
import importlib, json, os, sys
from dualml.course.isolation import server
for module in sys.argv[1:]:
    importlib.import_module(module)
from dualml.course.isolation.root import HIDDEN_PACKAGES, find_contents
loaded = [m.__file__ for n, m in sys.modules.items() if n.split(".")[0].startswith("dualml")]
ours = set(filter(None, loaded))
ours |= {os.path.splitext(file)[0] + end for file in ours for end in (".toml", ".json")}
whole = find_contents()
hidden = [path for path in whole.hidden if HIDDEN_PACKAGES.fullmatch(os.path.basename(path))]
print(json.dumps([whole.shown, whole.links, hidden, sorted(filter(os.path.exists, ours))]))
"""


def command(modules: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Return the bubblewrap command that precedes the server's command.

    Raises:
        OSError: bubblewrap is not installed, or the contents of the root cannot be determined.
    """
    program = shutil.which("bwrap")
    if program is None:
        raise OSError("bubblewrap is not installed")
    contents, ours = describe(tuple(modules), tuple(sorted(environ.items())))
    words = [program, "--unshare-all", "--die-with-parent", "--dev", "/dev"]
    if os.geteuid() == 0:
        words += ["--uid", "65534", "--gid", "65534"]
    for path in contents.shown:
        words += ["--ro-bind", path, path]
    for path, target in contents.links:
        words += ["--symlink", target, path]
    for path in contents.hidden:
        words += ["--tmpfs", path] if os.path.isdir(path) else ["--ro-bind", os.devnull, path]
    for path in ours:
        words += ["--ro-bind", path, path]
    for path in contents.hidden:
        words += ["--remount-ro", path] if os.path.isdir(path) else []
    words += ["--tmpfs", "/dev/shm", "--remount-ro", "/dev/shm", "--size", str(QUOTA)]
    return [*words, "--tmpfs", HOME, "--dir", "/tmp", "--chdir", "/", "--"]


@functools.cache
def describe(
    modules: tuple[str, ...], environ: tuple[tuple[str, str], ...]
) -> tuple[Contents, list[str]]:
    """Return the contents of the root, and the files of dualml that the server imports, as a
    process with these modules and variables finds them, started once for each of these; raise
    `OSError` if it fails."""
    try:
        done = subprocess.run(
            [*python_argv("-c", DESCRIBE), *modules],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=IMPORT_S,
            check=True,
        )
        shown, links, hidden, ours = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        raise OSError(f"what a check needs cannot be found out: {error}") from None
    return Contents(shown, [(path, target) for path, target in links], hidden), ours
