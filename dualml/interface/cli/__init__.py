"""The command line: thin commands without logic; heavy imports happen when a command needs them."""

from __future__ import annotations

import io
import os
import sys

from dualml.interface.cli.output import complain
from dualml.interface.cli.signals import interrupt_on_signals, is_interrupted
from dualml.interface.cli.streams import make_interruptible
from dualml.launch.local_rank import without_local_rank

PROGRAM = "dualml"
#: Variable that a shell sets to ask for completions.
COMPLETING = "_DUALML_COMPLETE"


def main() -> None:
    """Run the command line, and exit with its code.

    For invalid input, users see one clear line, never a traceback.
    """
    interrupt_on_signals()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # an encoding without ✓ gets a ?
            stream.reconfigure(errors="replace")
    sys.stdout = make_interruptible(sys.stdout, is_interrupted)
    sys.stderr = make_interruptible(sys.stderr, is_interrupted)
    lang = "en"
    sys.argv[1:] = without_local_rank(sys.argv[1:], os.environ)
    try:
        from typer.main import get_command

        from dualml.common.errors import UserError
        from dualml.common.variables import unknown_variables
        from dualml.interface.cli.app import app
        from dualml.interface.cli.complete import skip_checks
        from dualml.interface.cli.defaults import Defaults, read_defaults
        from dualml.interface.cli.help import localise, requested_language

        lang, completing = requested_language(sys.argv[1:]), COMPLETING in os.environ
        command = get_command(app)
        if completing:
            skip_checks(command)
        for line in () if completing else unknown_variables(os.environ):
            complain(line)
        try:
            defaults = read_defaults(command)
        except UserError:
            if not completing:  # errors must not disturb a line that is being typed
                raise
            defaults = Defaults()
        for line in () if completing else defaults.notices:
            complain(line)
        lang = requested_language(sys.argv[1:], defaults.lang)
        localise(command, lang)
        code = command.main(
            prog_name=PROGRAM, standalone_mode=False, default_map=defaults.map, obj=defaults
        )
    except KeyboardInterrupt:
        complain("interrupted")
        code = 130
    except Exception as error:
        code = report_error(error, lang)
    # Python remembers an interrupt that arrived during `exec`, as for a dataclass of a module that
    # was being imported: `python -m` then ends with SIGINT, whatever the exit code. Another `exec`
    # clears that state.
    exec("")
    sys.exit(code if isinstance(code, int) else 0)


def report_error(error: Exception, lang: str = "en") -> int:
    """Print an expected error as one line and return its exit code: 2, 130 for an interrupt, or
    that of an `Exit`, which prints nothing. Raise an unexpected error again."""
    from typer import Abort, Exit, TyperException

    from dualml.common.errors import Unsupported, UserError
    from dualml.interface.cli.usage import translate, usage_message

    if isinstance(error, Exit):
        return int(error.exit_code)
    if isinstance(error, Abort):
        complain("interrupted")
        return 130
    if isinstance(error, TyperException):
        if not error.format_message():  # it printed the help instead
            return 2
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "dualml"
        text = f"{usage_message(error)} (see {command} --help)"
    elif isinstance(error, UserError | Unsupported):
        text = "".join([str(error), *getattr(error, "__notes__", ())])
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        raise error
    complain(translate(text, lang))
    return 2
