"""``python -m dualml``."""

import sys


def leave_current_folder() -> None:
    """Import nothing from the current folder, which ``python -m`` puts first: a ``random.py`` there
    would be taken for the standard library's. Where it holds this package, uninstalled, it comes
    before what is installed, here and in workers."""
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
    from dualml.cli import main

    main()
