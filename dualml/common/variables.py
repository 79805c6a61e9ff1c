"""Every environment variable that dualml reads, so that misspelt ones are noticed."""

from __future__ import annotations

from collections.abc import Iterable

from dualml.common.errors import did_you_mean

#: Defaults of the options of that name; a queued run has them in its own options.
OPTIONS = ("DUALML_LANG", "DUALML_BACKEND", "DUALML_OUT", "DUALML_DEVICE", "DUALML_THREADS")
#: A file of defaults that replaces all others; `NO_FILE` reads none.
CONFIG, NO_FILE = "DUALML_CONFIG", "none"
#: Variables whose value is never shown.
SECRET = ("DUALML_TOKEN", "DUALML_SECRET")
#: Other variables that users set.
USER_VARIABLES = (
    *("DUALML_DATA", "DUALML_CACHE", "DUALML_OFFLINE", "DUALML_JOBS", "DUALML_CHECKPOINT_S"),
    *("DUALML_FORK", "DUALML_ISOLATION", "DUALML_MINDSPORE_GRAPHS"),
    *("DUALML_TORCH_COMPILE", "DUALML_TORCH_MEMORY_FORMAT"),
)
#: The number of the job that a run belongs to.
JOB = "DUALML_JOB"
#: Where the workers of a command may leave files.
JOB_OUT = "DUALML_JOB_OUT"
#: Variables that dualml's own processes pass on to one another.
INTERNAL_VARIABLES = (
    *(JOB, JOB_OUT, "DUALML_HUB", "DUALML_KEEP_LOCAL", "DUALML_INTERFACE", "DUALML_ADDRESS"),
    *("DUALML_COMPARING", "DUALML_ISA_REASON"),
)
#: Variables of tests and benchmarks.
TESTS = (
    *("DUALML_CONFORMANCE", "DUALML_CONFORMANCE_DEVICE", "DUALML_REQUIRE", "DUALML_ABSENT"),
    *("DUALML_JUDGE_ALL", "DUALML_TEST_ALL_CASES", "DUALML_TEST_APART"),
    *("DUALML_PLANTED", "DUALML_TEST_MARK", "DUALML_TEST_FAULTS", "DUALML_TEST_FATES"),
    "DUALML_MINDSPORE_MODE",
)
#: All variables that dualml reads.
KNOWN_VARIABLES = (*OPTIONS, CONFIG, *USER_VARIABLES, *SECRET, *INTERNAL_VARIABLES, *TESTS)
#: Parts of variable names that mark a value as secret, in dualml and in other programs.
SECRET_NAME_PARTS = ("TOKEN", "SECRET", "PASSW", "CREDENTIAL", "API_KEY", "APIKEY", "PRIVATE_KEY")


def is_secret(name: str) -> bool:
    """Return whether, by its name, the value of a variable must be kept out of files and output."""
    return any(part in name.upper() for part in SECRET_NAME_PARTS)


def unknown_variables(environ: Iterable[str]) -> list[str]:
    """Return one line per variable name that starts with ``DUALML_`` but is unknown.

    A variable that starts with the name of a backend (``DUALML_TORCH_…``) may be that backend's
    own, unless it is close to a known name.
    """
    names = sorted(
        name for name in environ if name.startswith("DUALML_") and name not in KNOWN_VARIABLES
    )
    if not names:
        return []
    from importlib.metadata import entry_points

    points = entry_points(group="dualml.backends")
    own = tuple(f"DUALML_{point.name.upper()}_" for point in points)
    hints = {name: did_you_mean(name, KNOWN_VARIABLES, cutoff=0.8, fallback="") for name in names}
    return [
        f"unknown variable {name}{hint}"
        for name, hint in hints.items()
        if hint or not name.startswith(own)
    ]
