"""A rank that dualml has started over ssh: ``python -m dualml.launch.hosts.remote``.

The first line of its input is JSON: the arguments of the command, and variables, among them the
run's token, which therefore appears in no list of processes. When its input ends, the process that
started it is gone, and it ends, too.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import threading


def end_with_input() -> None:
    """Wait until the input ends, then send this process SIGTERM, and exit at once if it is still
    there after 10 seconds."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(10)
    os._exit(70)


def main() -> None:
    """Read arguments and variables from the input, and run dualml."""
    with os.fdopen(0, "rb", buffering=0, closefd=False) as raw:  # a buffer would have a lock
        told = json.loads(raw.readline())
    os.environ.update(told["environ"])
    threading.Thread(target=end_with_input, daemon=True).start()
    sys.argv = ["dualml", *told["words"]]
    runpy.run_module("dualml", run_name="__main__")


if __name__ == "__main__":
    main()
