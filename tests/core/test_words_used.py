"""Every message is used, and every requested message exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from source_trees import parse_source

from dualml.common.words import load_messages
from dualml.report.topics import REFERENCE, topics

ROOT = Path(__file__).resolve().parents[2] / "dualml"
#: Sections whose keys are looked up by a prefix that is passed on.
HANDED_ON = (
    "mistake",  # `dualml.parity.hypothesis.Hypothesis.words`
    "figure.then",
    "part_of_update",
    "scaling.part",
    "scaling.short",
    "batch.series",
    "zero_price",
    "help",
    "causes",
    "requirement",
    "errors",
)
#: Methods of `Notes` whose first argument is the key of a sentence.
NOTES = ("add", "add_warning")
FORMS = re.compile(r"\.(one|other)$")


class Source:
    """A source file: its literals, its f-strings as patterns, and the topic of its sentences."""

    def __init__(self, path: Path) -> None:
        self.path = path
        nodes = list(ast.walk(parse_source(path.read_text("utf-8"))))
        formatted = [n for n in nodes if isinstance(n, ast.JoinedStr)]
        inside = {part for f in formatted for part in f.values}
        self.literals = {
            n.value
            for n in nodes
            if isinstance(n, ast.Constant) and isinstance(n.value, str) and n not in inside
        }
        self.patterns = {pattern(f) for f in formatted}
        self.calls = [n for n in nodes if isinstance(n, ast.Call)]
        self.topics = {topic for call in self.calls for topic in sentence_prefixes(call)}


def sentence_prefixes(call: ast.Call) -> Iterator[str]:
    """Yield the topic whose sentences a call makes: ``Notes(words, "TOPIC")``,
    ``ReportSection("TOPIC", …)`` or ``table_section(…, messages="TOPIC")``."""
    at = {"Notes": 1, "ReportSection": 0, "table_section": 0}.get(name(call), len(call.args))
    named = [k.value for k in call.keywords if k.arg == "messages"]
    for value in named or call.args[at : at + 1]:
        if isinstance(value, ast.Constant):
            yield str(value.value)


def name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def pattern(f: ast.JoinedStr) -> str:
    """Return a regular expression for the keys that an f-string (``topic.{name}``) can produce."""
    part = r"[\w-]+"
    return "".join(re.escape(v.value) if isinstance(v, ast.Constant) else part for v in f.values)


@cache
def sources() -> tuple[Source, ...]:
    return tuple(Source(path) for path in sorted(ROOT.rglob("*.py")))


@cache
def used_keys() -> tuple[set[str], list[str]]:
    """Return the keys named literally, and patterns of those that are composed."""
    keys: set[str] = set()
    patterns: set[str] = set()
    for source in sources():
        keys |= source.literals
        for text in source.literals:
            column, _, unit = text.removesuffix("?").strip("`").partition(":")
            keys |= {f"column.{column}", f"unit.{unit}", f"count.{text}"}
            keys |= {f"say.{topic}.{text}" for topic in source.topics}
            if re.fullmatch(r"[a-z_]+\.[\w.]*\{\}[\w.]*", text):  # `cards.method_cards`
                patterns.add(re.escape(text).replace(r"\{\}", r"[\w-]+"))
        patterns |= {p for p in source.patterns if re.match(r"[a-z_]{2,}\\\.", p)}
        for call in source.calls:
            if name(call) == "section_messages" and isinstance(call.args[-1], ast.Constant):
                patterns.add(re.escape(call.args[-1].value) + r"\..+")
            if name(call) in NOTES and call.args and isinstance(call.args[0], ast.JoinedStr):
                key = pattern(call.args[0])
                patterns |= {rf"say\.{topic}\.{key}" for topic in source.topics}
    patterns -= {r"topic\.[\w-]+", r"intro\.[\w-]+"}  # of any topic: those there are
    keys |= {f"{text}.{topic.name}" for topic in topics() for text in ("topic", "intro")}
    keys |= {f"intro.{part}" for part in REFERENCE}
    counted = re.findall(r":(count\.\w+)\}", " ".join(load_messages("en").values()))
    keys |= {*counted}
    return keys, [*patterns, *(re.escape(section) + r"\..+" for section in HANDED_ON)]


def test_every_text_is_used() -> None:
    keys, patterns = used_keys()
    whole = re.compile("|".join(f"(?:{p})" for p in patterns))
    idle = [
        key
        for key in load_messages("en")
        if not any(k in keys or whole.fullmatch(k) for k in (key, FORMS.sub("", key)))
    ]
    assert not idle, "\n".join(idle)


def test_every_text_that_is_asked_for_exists() -> None:
    texts = load_messages("en")
    missing = [
        (source.path.name, key)
        for source in sources()
        for key in literal_keys(source)
        if not (key in texts or f"{key}.one" in texts)
    ]
    assert missing == []


def literal_keys(source: Source) -> Iterator[str]:
    """Yield the keys that appear literally in calls."""
    for call in source.calls:
        first = call.args[0] if call.args else None
        if name(call) == "columns":
            specs = [a.value for a in ast.walk(call) if isinstance(a, ast.Constant)]
            yield from (f"column.{s.strip('`').partition(':')[0]}" for s in specs if s)
        if not (isinstance(first, ast.Constant) and isinstance(first.value, str)):
            continue
        if name(call) in ("words", "plural") and "." in first.value:
            yield first.value
        elif name(call) == "count" and len(call.args) == 2 and "words" in ast.unparse(call.func):
            yield f"count.{first.value}"
        elif name(call) in NOTES and len(source.topics) == 1:
            (topic,) = source.topics
            yield f"say.{topic}.{first.value}"


def test_the_search_notices() -> None:
    keys, patterns = used_keys()
    assert "page.footer" in keys
    assert any(re.fullmatch(p, "verdict.anything") for p in patterns)
    assert not any(re.fullmatch(p, "nothing.of_the_kind") for p in patterns)
    assert "say.speed.ratio" in {k for s in sources() for k in literal_keys(s)}
