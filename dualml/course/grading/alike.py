"""Pairs of submissions that are alike: winnowing.

A file becomes its tokens, without comments and layout; fingerprints are hashes of K tokens in a
row, of which the smallest of every W is kept. A passage of W + K − 1 equal tokens is never missed.
What the skeleton has already counts for nothing.

Source: Schleimer, Wilkerson & Aiken 2003, "Winnowing: Local Algorithms for Document
Fingerprinting", SIGMOD.
"""

from __future__ import annotations

import hashlib
import io
import keyword
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

K, W = 10, 8
SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
           tokenize.ENCODING, tokenize.ENDMARKER}  # fmt: skip
#: Hash → lines of the file in which its tokens stand.
Prints = dict[int, set[int]]


@dataclass(frozen=True)
class Pair:
    """Two students' files.

    Attributes:
        share: of the fingerprints that the smaller of the two has, those that both have.
        names: the same with the names that the students chose: nearer to a copy.
        lines: of each, the lines that are in a common passage.
    """

    a: str
    b: str
    file: str
    share: float
    names: float
    lines: tuple[frozenset[int], frozenset[int]]


def tokens(source: str, names: bool) -> Iterator[tuple[str, int]]:
    """Texts of the tokens with their lines; without ``names`` every name is alike."""
    docstring = True
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in SKIPPED:
                docstring = docstring or token.type in (tokenize.NEWLINE, tokenize.INDENT)
                continue
            text = token.string
            if token.type == tokenize.STRING and docstring:
                continue
            docstring = False
            if token.type == tokenize.NAME and not names and not keyword.iskeyword(text):
                text = "N"
            yield text, token.start[0]
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return


def fingerprints(source: str, names: bool) -> Prints:
    """The winnowed hashes of a file."""
    stream = list(tokens(source, names))
    hashes = []
    for at in range(len(stream) - K + 1):
        text = "\x1f".join(t for t, _ in stream[at : at + K])
        hashes.append(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()))
    kept: Prints = {}
    for first in range(max(1, len(hashes) - W + 1)):
        window = hashes[first : first + W]
        if not window:
            break
        smallest = min(range(len(window)), key=lambda i: (window[i], -i))
        at = first + smallest
        kept.setdefault(hashes[at], set()).update(line for _, line in stream[at : at + K])
    return kept


def pairs(files: Mapping[str, Mapping[str, str]], skeletons: Mapping[str, str]) -> list[Pair]:
    """Every two students' files of one name, the most alike first.

    Args:
        files: student → file → source.
        skeletons: file → what everybody was given.
    """
    found = []
    for name, given in skeletons.items():
        base = [fingerprints(given, names) for names in (False, True)]
        prints = {
            student: [own(fingerprints(own_files[name], names), base[names])
                      for names in (False, True)]
            for student, own_files in files.items() if name in own_files
        }  # fmt: skip
        for a, b in combinations(prints, 2):
            common = prints[a][0].keys() & prints[b][0].keys()
            if not common:
                continue
            lines = tuple(frozenset(n for h in common for n in prints[s][0][h]) for s in (a, b))
            found.append(Pair(a, b, name, share(prints[a][0], prints[b][0]),
                              share(prints[a][1], prints[b][1]), (lines[0], lines[1])))  # fmt: skip
    return sorted(found, key=lambda pair: (-pair.names, -pair.share, pair.a, pair.b))


def own(prints: Prints, given: Prints) -> Prints:
    return {h: lines for h, lines in prints.items() if h not in given}


def share(a: Prints, b: Prints) -> float:
    smaller = min(len(a), len(b))
    return len(a.keys() & b.keys()) / smaller if smaller else 0.0


def remarkable(found: Sequence[Pair], most: int = 20, least: float = 0.5) -> list[Pair]:
    """The pairs to look at: at least half alike with their names, and more than the class is. A
    short exercise has few ways to be right: the middle of all pairs says how alike they are."""
    if not found:
        return []
    names = sorted(pair.names for pair in found)
    middle = names[len(names) // 2]
    bar = max(least, (1 + middle) / 2 if len(found) > 1 else least)
    return [pair for pair in found if pair.names >= bar][:most]
