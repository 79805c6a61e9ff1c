"""Run the command line with ``python -m dualml``."""

import sys


def leave_current_folder() -> None:
    """Remove the current folder from the import path, where ``python -m`` puts it first.

    A ``random.py`` in the current folder would otherwise shadow the standard library's. If the
    current folder holds this package, not installed, its path moves to just before
    ``site-packages``, here and in the workers.
    """
    import os

    here, root = sys.path[0], os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        current = os.getcwd()
    except FileNotFoundError:  # it was removed, and Python does not look there
        return
    if sys.flags.safe_path or (here and here != current):
        return
    del sys.path[0]
    if here and os.path.realpath(here) == os.path.realpath(root) and root not in sys.path:
        installed = (i for i, place in enumerate(sys.path) if place.endswith("-packages"))
        sys.path.insert(next(installed, len(sys.path)), root)
        paths = filter(None, (os.environ.get("PYTHONPATH"), root))
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)


if __name__ == "__main__":
    leave_current_folder()
    from dualml.interface.cli import main

    main()
