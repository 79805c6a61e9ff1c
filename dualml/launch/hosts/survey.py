"""Survey of a machine: ``python -m dualml.launch.hosts.survey HOST PORT`` prints it as one line of
JSON."""

from __future__ import annotations

import json
import shutil
import socket
import sys
import tempfile
import time

from dualml.backend import backends
from dualml.common.machine import query_gpus
from dualml.launch.connection import describe_error
from dualml.launch.credentials import versions

REACH_S = 5.0


def survey(host: str, port: int) -> dict[str, object]:
    """Return versions (``same``), the ``clock`` in seconds since 1970, ``free`` bytes for temporary
    files, number of NVIDIA ``gpus``, and why rank 0, to which a connection is tried, cannot be
    reached (``refused``; None if it can)."""
    refused = None
    try:
        socket.create_connection((host, port), timeout=REACH_S).close()
    except OSError as error:
        refused = describe_error(error)
    return {
        "same": versions(backends().values()),
        "clock": time.time(),
        "free": shutil.disk_usage(tempfile.gettempdir()).free,
        "gpus": len(query_gpus()[0]),
        "refused": refused,
    }


if __name__ == "__main__":
    print(json.dumps(survey(sys.argv[1], int(sys.argv[2]))))
