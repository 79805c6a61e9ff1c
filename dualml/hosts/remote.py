"""One rank that dualml has started over ssh: ``python -m dualml.hosts.remote``.

The first line of its input is JSON: the words of the command and variables, the run's token among
them, which no list of processes shows. When its input ends, whoever started it is gone: so is it.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import threading


def watch() -> None:
    """End as by Ctrl-C when the input ends, and for good if that does not do."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(10)
    os._exit(70)


def main() -> None:
    with os.fdopen(0, "rb", buffering=0, closefd=False) as raw:  # a buffer would have a lock
        told = json.loads(raw.readline())
    os.environ.update(told["environ"])
    threading.Thread(target=watch, daemon=True).start()
    sys.argv = ["dualml", *told["words"]]
    runpy.run_module("dualml", run_name="__main__")


if __name__ == "__main__":
    main()
