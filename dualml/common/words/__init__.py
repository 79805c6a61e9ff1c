"""The message catalogue: all texts for people, in two languages.

Each language is a folder of TOML files with equal keys.
"""

from __future__ import annotations

import string
import tomllib
from collections.abc import Sequence
from fnmatch import fnmatch
from functools import cache
from importlib.resources import files
from typing import Any

from dualml.common.errors import UserError, did_you_mean
from dualml.common.words import numbers

LANGUAGES = ("en", "zh")


class Messages(string.Formatter):
    """Messages of one language: look up a text by its dotted key, and fill in values.

    The text says how each value is written: ``{p.step:ms}`` by a function of
    `dualml.common.words.numbers` (for several seeds, the mean), ``{n:count.update}`` with its noun,
    ``{arms:join}`` or ``{items:semicolons}`` as a list in prose, ``{shares:each.percent}`` as a
    list of names with numbers.

    Args:
        lang: ``en`` or ``zh``.

    Raises:
        UserError: the language is unknown.

    Example:
        >>> Messages("en").count("update", 2000)
        '2,000 updates'
    """

    def __init__(self, lang: str) -> None:
        if lang not in LANGUAGES:
            raise UserError(f"unknown language {lang!r}{did_you_mean(lang, LANGUAGES)}")
        self.lang = lang
        self.table = load_messages(lang)

    def __call__(self, key: str, **values: Any) -> str:
        """Return the text of ``key`` with its values, or without any exactly as it is, braces
        included; an unknown key raises `KeyError`, as a bug."""
        text = self.table[key]
        return self.vformat(text, (), values) if values else text

    def format_field(self, value: Any, spec: str) -> str:
        """Format a value by its format spec: ``join`` or ``semicolons`` (a list), ``count.NOUN`` (a
        number), ``each.SPEC`` (name → number), a number format of `numbers`, or Python's own."""
        if spec in ("join", "semicolons"):
            return str(getattr(self, spec)(list(value)))
        kind, _, name = spec.partition(".")
        if kind == "count":
            return self.count(name, value)
        if kind == "each":
            each = (f"{key} {self.format_field(number, name)}" for key, number in value.items())
            return self.join(list(each))
        if spec in numbers.FORMATTERS:
            return numbers.format_by_name(spec, value)
        return str(super().format_field(value, spec))

    def get(self, key: str, default: str) -> str:
        """Return the text of ``key``, with no values filled in, or ``default`` for names that this
        version does not know."""
        return self.table.get(key, default)

    def get_formatted(self, key: str, default: str, **values: Any) -> str:
        """Return the text of ``key`` with its values (without any exactly as it is), or ``default``
        as it is if there is no such key."""
        return self(key, **values) if key in self.table else default

    def plural(self, key: str, n: float, /, **values: Any) -> str:
        """Return the text of ``key.one`` if ``n`` is 1, else of ``key.other``; only ``values`` are
        filled in, not ``n``."""
        return self(f"{key}.{'one' if n == 1 else 'other'}", **values)

    def count(self, noun: str, n: float) -> str:
        """Format a number with its noun: ``1 update``, ``2,000 updates``, ``0.5 epochs``."""
        return self.plural(f"count.{noun}", n, n=numbers.quantity(n))

    def join(self, names: Sequence[str]) -> str:
        """Join names as a list in prose: ``a``, ``a and b``, ``a, b and c``."""
        if len(names) < 2:
            return "".join(names)
        first, last, link = self("list.comma").join(names[:-1]), names[-1], self("list.and")
        if self.lang == "zh":  # a space stands between Chinese and Latin letters only
            link = " " * first[-1:].isascii() + link.strip() + " " * last[:1].isascii()
        return first + link + last

    def join_sentences(self, parts: Sequence[str]) -> str:
        """Join sentences into a paragraph, with spaces between them in English, none in Chinese."""
        return self("list.sentence").join(parts)

    def semicolons(self, parts: Sequence[str]) -> str:
        """Join parts with semicolons."""
        return self("list.semicolon").join(parts)


@cache
def load_messages(
    lang: str, file: str = "*", package: str = "dualml.common.words"
) -> dict[str, str]:
    """Load the messages of one language: dotted key → text, from all its files or from one.

    The result is cached and shared: callers must not change it.

    Args:
        file: file name without ``.toml``, or a pattern.
        package: package with the folders of the languages; a backend has its own.

    Raises:
        ValueError: two files define the same key.
    """
    texts: dict[str, str] = {}
    homes: dict[str, str] = {}  # key → name of its file
    folder = files(package) / lang
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if fnmatch(path.name, f"{file}.toml"):
            added = _flat(tomllib.loads(path.read_text(encoding="utf-8")))
            if twice := sorted(texts.keys() & added.keys()):
                places = (f"{key} of {lang}/{homes[key]}" for key in twice)
                raise ValueError(f"{lang}/{path.name} repeats {', '.join(places)}")
            texts |= added
            homes |= dict.fromkeys(added, path.name)
    return texts


@cache
def section_messages(lang: str, name: str) -> dict[str, str]:
    """Return the messages whose keys begin with ``name`` and a dot, by the rest of their keys; the
    result is cached and must not be changed."""
    texts = load_messages(lang)
    return {k.removeprefix(f"{name}."): v for k, v in texts.items() if k.startswith(f"{name}.")}


def all_languages(
    key: str, package: str = "dualml.common.words", /, **values: Any
) -> dict[str, str]:
    """Return a message in every language, with ``values`` filled in by `str.format`: language →
    text."""
    return {lang: load_messages(lang, package=package)[key].format(**values) for lang in LANGUAGES}


def _flat(nested: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Flatten nested tables into dotted keys, each after ``prefix``; values become text."""
    out: dict[str, str] = {}
    for key, value in nested.items():
        name = f"{prefix}{key}"
        out |= _flat(value, f"{name}.") if isinstance(value, dict) else {name: str(value)}
    return out
