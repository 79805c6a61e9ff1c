"""Look up catalogue entries by name or words, by the cause of a difference, or by an error."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from dualml.parity.diffs import load
from dualml.parity.diffs.code import package_of, probe_code
from dualml.parity.diffs.entry import TOPICS, DifferenceEntry

#: Words of up to this many letters match only whole words.
MAX_WHOLE_WORD_CHARS = 3
CALL = re.compile(r"\b(\w+)\(")
PACKAGE = re.compile(r"\bmindspore\.[\w.]+\w")


def search_entries(words: Sequence[str]) -> list[DifferenceEntry]:
    """Return the entry with this name, or else the entries that contain most of the words.

    Names, texts and sources are searched, in both languages and regardless of case.

    Raises:
        UserError: no entry contains any of the words, or the only word is a topic.
    """
    name = words[0].replace("_", "-")
    if len(words) == 1 and (name in load.catalogue() or words[0] in TOPICS):
        return [load.find_entry(words[0])]
    wanted = [word_pattern(word) for word in " ".join(words).split()]
    counts = {
        name: count_matches(wanted, searchable_text(one)) for name, one in load.catalogue().items()
    }
    most = max(counts.values())
    if not most:
        return [load.find_entry(" ".join(words))]
    return [load.catalogue()[name] for name, count in counts.items() if count == most]


def word_pattern(word: str) -> re.Pattern[str]:
    """Return a pattern for words of a case-folded text that begin with these letters; words of up
    to three letters must match whole.

    Chinese text is matched anywhere, since it has no spaces between words.
    """
    letters = re.escape(word.casefold())
    if not word.isascii():
        return re.compile(letters)
    return re.compile(
        rf"(?<![a-z0-9]){letters}" + ("" if len(word) > MAX_WHOLE_WORD_CHARS else r"(?![a-z0-9])")
    )


def count_matches(wanted: Sequence[re.Pattern[str]], text: str) -> int:
    """Count the patterns that occur in a text."""
    return sum(pattern.search(text) is not None for pattern in wanted)


def searchable_text(one: DifferenceEntry) -> str:
    """Return all searchable text of an entry in both languages, case-folded."""
    both = (one.title, one.torch, one.mindspore, one.remedy)
    texts = [text for part in both for text in (part.en, part.zh)]
    return " ".join((one.name, one.function, *texts, *one.sources)).casefold()


def entries_about(name: str) -> tuple[str, ...]:
    """Return the names of the entries about a hypothesis (`dualml.parity.hypothesis`), the best one
    first; most have none."""
    return (*entries_by_finding().get(name, ()), *entries_by_cause().get(name, ()))


@functools.cache
def entries_by_finding() -> dict[str, list[str]]:
    """Map each cause of a difference between runs to the names of the entries about it."""
    path = Path(__file__).parents[1] / "finder" / "entries.toml"
    return tomllib.loads(path.read_text("utf-8"))


@functools.cache
def entries_by_cause() -> dict[str, tuple[str, ...]]:
    """Map each cause such as ``layer_norm.eps`` to the names of the entries that explain it."""
    names: dict[str, tuple[str, ...]] = {}
    for one in load.catalogue().values():
        for cause in one.explains:
            names[cause] = (*names.get(cause, ()), one.name)
    return names


def entries_for_error(line: str) -> list[str]:
    """Return the names of entries that may explain an error raised by a line of code.

    These are entries in which one framework raises, and whose texts and MindSpore probe both
    mention a function that ``line`` calls.

    Args:
        line: code of the line that raised, and of the line that built its layer.
    """
    return entries_that_call(line, "raises")


def entries_for_types(line: str) -> list[str]:
    """Return the names of the entries about the type of numbers that a function returns, for the
    functions that ``line`` calls; chosen as in `entries_for_error`."""
    return entries_that_call(line, "type")


def entries_that_call(line: str, kind: str) -> list[str]:
    """Return the names of the entries of a kind that are about a function that ``line`` calls.

    Their English texts mention the function, and their MindSpore probe calls it, or their title
    names the package from which the line takes it: ``mint.nn.Embedding(…)`` fits an entry about
    ``mindspore.mint.nn``.
    """
    called = set(CALL.findall(line))
    names = []
    for one in load.catalogue().values():
        if one.kind == kind:
            probed = CALL.findall(probe_code(one, package_of("mindspore")).get("plain", ""))
            words = re.findall(r"\w+", f"{one.title.en} {one.torch.en} {one.mindspore.en}")
            packages = [name.partition(".")[2] for name in PACKAGE.findall(one.title.en)]
            of_package = any(f"{package}." in line for package in packages)
            if called & set(words) & (called if of_package else set(probed)):
                names.append(one.name)
    return names
