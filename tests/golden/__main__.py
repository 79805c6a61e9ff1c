"""Golden runs: what must stay as it was, whatever is rebuilt.

    python -m tests.golden check [NAME …]     all, or those named: numpy/lab1
    python -m tests.golden record [NAME …]    write the records again

``numpy/LAB`` is a small run of a lab with the NumPy backend, made again every time: the plan and
its files, the files of the run folder and their keys, verdicts, exit codes and every record must
be what they were; trained numbers to 1e-9, and to the byte on the machine that recorded them.

``recorded/LAB`` is a run folder that version 0.1.0 wrote with both frameworks: it stays readable,
and verdicts and pages made from it again, without a framework, are what they were. Recording one
runs the lab with the frameworks that are installed.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from golden_check import NAMES, check, record


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden", usage=__doc__)
    parser.add_argument("what", choices=["check", "record"])
    parser.add_argument("names", nargs="*", metavar="NAME")
    asked = parser.parse_args()
    chosen = [n for n in NAMES if not asked.names or any(word in n for word in asked.names)]
    changed = 0
    for name in chosen:
        begin = time.monotonic()
        found = check(name) if asked.what == "check" else record(name)
        changed += bool(found)
        mark = "✗" if found else "✓"
        print(f"{mark} {name}, {time.monotonic() - begin:.1f} s", flush=True)
        for line in found:
            print(f"    {line}")
    return bool(changed or not chosen)


if __name__ == "__main__":
    sys.exit(main())
