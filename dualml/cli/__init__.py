"""The command line: thin commands, no logic, nothing heavy imported before it is needed."""

from __future__ import annotations

import io
import sys

from dualml.cli.output import complain
from dualml.cli.signals import end_as_interrupted


def main() -> None:
    """Entry point. Users see one clear line, never a traceback, for input that cannot be meant."""
    end_as_interrupted()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal or a file that has no ✓ gets a ?
            stream.reconfigure(errors="replace")
    try:
        from typer.main import get_command

        from dualml.cli.app import app
        from dualml.cli.help import language, localise

        command = get_command(app)
        localise(command, language(sys.argv[1:]))
        code = command.main(standalone_mode=False)
    except KeyboardInterrupt:
        complain("interrupted")
        code = 130
    except Exception as error:
        code = explain(error)
    # Python remembers an interrupt that came while text was executed, as for a dataclass of a
    # module that was being imported: `python -m` then ends by SIGINT, whatever its exit code is to
    # be. It forgets as soon as other text is executed.
    exec("")
    sys.exit(code if isinstance(code, int) else 0)


def explain(error: Exception) -> int:
    """Print an expected error as one line; its exit code. Anything else is a bug of ours."""
    from typer import Abort, Exit, TyperException

    from dualml.errors import Unsupported, UserError

    if isinstance(error, Exit):
        return int(error.exit_code)
    if isinstance(error, Abort):
        complain("interrupted")
        return 130
    if isinstance(error, TyperException):
        if not error.format_message():  # it printed the help instead
            return 2
        complain(f"{error.format_message()} (see dualml --help)")
        return 2
    if isinstance(error, UserError | Unsupported):
        complain(str(error))
        return 2
    if isinstance(error, OSError) and error.strerror:
        complain(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
        return 2
    raise error
