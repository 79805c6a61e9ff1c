"""Pairs of submissions that are alike: winnowing.

A file becomes its tokens, without comments and layout; fingerprints are hashes of K tokens in a
row, of which the smallest of every W is kept. A passage of W + K − 1 equal tokens is never missed.
What the skeleton has already counts for nothing, nor does what so many students have that it must
come from the task.

Source: Schleimer, Wilkerson & Aiken 2003, "Winnowing: Local Algorithms for Document
Fingerprinting", SIGMOD.
"""

from __future__ import annotations

import hashlib
import io
import keyword
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

K, W = 10, 8
#: Students who have a passage, at least and as a share of the class, until it is everybody's.
MANY, PART = 5, 0.25
#: Fingerprints that two files have in common, at least: four lines can only be written in one way.
FEWEST = 12
#: The share and number of fingerprints of two files that are one, whoever else has them, too.
SAME, LONG = 0.95, 40
SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
           tokenize.ENCODING, tokenize.ENDMARKER}  # fmt: skip
#: Hash → lines of the file in which its tokens stand.
Prints = dict[int, set[int]]


@dataclass(frozen=True)
class Pair:
    """Two students' files.

    Attributes:
        share: of the fingerprints that the smaller of the two has, those that both have; whatever
            the names are.
        names: the same with the names that the students chose.
        common: how many fingerprints both have.
        lines: of each, the lines that are in a common passage.
    """

    a: str
    b: str
    file: str
    share: float
    names: float
    common: int
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
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError):
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
        most = max(MANY, PART * len(prints))
        held = [Counter(h for both in prints.values() for h in both[which]) for which in (0, 1)]
        rare = {
            student: [
                {h: lines for h, lines in both[which].items() if held[which][h] < most}
                for which in (0, 1)
            ]
            for student, both in prints.items()
        }
        for a, b in combinations(prints, 2):
            whole = same(prints[a][0], prints[b][0])
            one, other = (prints if whole else rare)[a], (prints if whole else rare)[b]
            common = one[0].keys() & other[0].keys()
            if common:
                lines = tuple(frozenset(n for h in common for n in own_prints[0][h])
                              for own_prints in (one, other))  # fmt: skip
                found.append(Pair(a, b, name, share(one[0], other[0]), share(one[1], other[1]),
                                  len(common), (lines[0], lines[1])))  # fmt: skip
    return sorted(found, key=lambda pair: (-pair.share, -pair.common, pair.a, pair.b))


def own(prints: Prints, given: Prints) -> Prints:
    return {h: lines for h, lines in prints.items() if h not in given}


def same(a: Prints, b: Prints) -> bool:
    return len(a.keys() & b.keys()) >= max(LONG, SAME * max(len(a), len(b)))


def share(a: Prints, b: Prints) -> float:
    smaller = min(len(a), len(b))
    return len(a.keys() & b.keys()) / smaller if smaller else 0.0


def remarkable(found: Sequence[Pair], pairs: int, most: int = 20, least: float = 0.5) -> list[Pair]:
    """The pairs to look at: at least half alike, and more than the class is; a copy always. Other
    names change nothing: whoever copies changes them first.

    Args:
        found: the pairs that have something in common.
        pairs: how many there are.
    """
    long = [pair for pair in found if pair.common >= FEWEST]
    shares = sorted((pair.share for pair in long), reverse=True)
    middle = shares[pairs // 2] if 1 < pairs // 2 < len(shares) else 0.0
    bar = max(least, (1 + middle) / 2)
    return [pair for pair in long if pair.share >= min(bar, SAME)][:most]
