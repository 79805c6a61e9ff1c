"""Run tox. With tox-uv beside it, environments are installed by uv, which gets pip's settings.

uv takes seconds where pip takes minutes, and links files into the environments instead of copying
them; but it reads none of pip's configuration (indexes, local wheels, certificates).
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys

#: pip's setting → uv's variable, and what stands between several values there.
SETTINGS = {
    "index-url": ("UV_DEFAULT_INDEX", ""),
    "extra-index-url": ("UV_EXTRA_INDEX_URL", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", ""),
}


def pip_settings() -> dict[str, list[str]]:
    """What pip was configured with; environment variables come before files."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout.splitlines()
    values: dict[str, list[str]] = {}
    for line in sorted(listed, key=lambda line: line.startswith(":env:")):
        key, _, value = line.partition("=")
        values[key.rpartition(".")[2]] = str(ast.literal_eval(value)).split()
    return values


if __name__ == "__main__":
    for name, parts in pip_settings().items():
        if name in SETTINGS:
            variable, between = SETTINGS[name]
            os.environ.setdefault(variable, between.join(parts))
    os.environ.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")  # any index, as for pip
    os.execv(sys.executable, [sys.executable, "-m", "tox", *sys.argv[1:]])
