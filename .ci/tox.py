"""Run tox. With tox-uv beside it, environments are installed by uv, which gets pip's settings.

uv takes seconds where pip takes minutes, and links files into the environments instead of copying
them; but it reads none of pip's configuration (indexes, local wheels, certificates).
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys

#: pip's setting → uv's variable, and its separator between values.
SETTINGS = {
    "index-url": ("UV_DEFAULT_INDEX", ""),
    "extra-index-url": ("UV_EXTRA_INDEX_URL", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", ""),
}


def pip_settings() -> dict[str, list[str]]:
    """Return pip's configured settings; environment variables take precedence over files."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout.splitlines()
    values: dict[str, list[str]] = {}
    for line in sorted(listed, key=lambda line: line.startswith(":env:")):
        key, _, value = line.partition("=")
        values[key.rpartition(".")[2]] = str(ast.literal_eval(value)).split()
    return values


def uv_settings() -> dict[str, str]:
    """Return pip's settings as uv variables, without those that are already set."""
    found = {
        SETTINGS[name][0]: SETTINGS[name][1].join(parts)
        for name, parts in pip_settings().items()
        if name in SETTINGS
    }
    found["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # any index, as for pip
    return {name: value for name, value in found.items() if name not in os.environ}


if __name__ == "__main__":
    os.environ |= uv_settings()
    os.execv(sys.executable, [sys.executable, "-m", "tox", *sys.argv[1:]])
