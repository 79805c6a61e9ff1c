"""``python -m dualml``."""

from dualml.cli import main

if __name__ == "__main__":
    main()
