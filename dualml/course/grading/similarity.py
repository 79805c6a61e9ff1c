"""Detection of similar submissions by winnowing.

A file is reduced to its tokens, without comments and layout. Fingerprints are hashes of K
consecutive tokens, of which the smallest in every window of W is kept, so that a passage of W + K −
1 equal tokens is never missed. Fingerprints of the skeleton do not count, nor do those that are so
common that they must come from the task.

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
#: Minimum number of students, and minimum share of the class, from which a passage counts as common
#: to all.
MIN_COMMON_STUDENTS, MIN_COMMON_SHARE = 5, 0.25
#: Minimum number of fingerprints shared by two similar files: four lines may have only one form.
MIN_SHARED_FINGERPRINTS = 12
#: Minimum share and number of common fingerprints that make one file a copy, however common they
#: are.
MIN_COPY_SHARE, MIN_COPY_FINGERPRINTS = 0.95, 40
SKIPPED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
#: Hash → lines of the file on which its tokens are.
Prints = dict[int, set[int]]


@dataclass(frozen=True)
class SimilarPair:
    """Similarity of two students' files.

    Attributes:
        share: fraction of the smaller file's fingerprints that both have, ignoring names.
        names: this fraction with the names that the students chose.
        common: number of common fingerprints.
        lines: for each file, the lines in a common passage.
    """

    a: str
    b: str
    file: str
    share: float
    names: float
    common: int
    lines: tuple[frozenset[int], frozenset[int]]


def tokens(source: str, names: bool) -> Iterator[tuple[str, int]]:
    """Yield the texts of the tokens with their lines (from 1), without comments, layout and
    docstrings; without ``names`` all names are equal. Stop where the source cannot be read."""
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
    """Return the winnowed hashes of a file's token sequences, each with its lines; without
    ``names`` all names count as equal. Empty with fewer than `K` tokens."""
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


def compare_files(
    files: Mapping[str, Mapping[str, str]], skeletons: Mapping[str, str]
) -> list[SimilarPair]:
    """Compare every two students' files of one name; return the pairs that have a fingerprint in
    common, the most similar first. Fingerprints of the skeleton do not count, nor, unless one file
    `is_copy` of the other, those of many students; files without a skeleton are ignored.

    Args:
        files: student → file → source.
        skeletons: file → skeleton that all students received.
    """
    found = []
    for name, given in skeletons.items():
        base = [fingerprints(given, names) for names in (False, True)]
        prints = {
            student: [
                drop_common(fingerprints(own_files[name], names), base[names])
                for names in (False, True)
            ]
            for student, own_files in files.items()
            if name in own_files
        }
        most = max(MIN_COMMON_STUDENTS, MIN_COMMON_SHARE * len(prints))
        held = [Counter(h for both in prints.values() for h in both[which]) for which in (0, 1)]
        rare = {
            student: [
                {h: lines for h, lines in both[which].items() if held[which][h] < most}
                for which in (0, 1)
            ]
            for student, both in prints.items()
        }
        for a, b in combinations(prints, 2):
            whole = is_copy(prints[a][0], prints[b][0])
            one, other = (prints if whole else rare)[a], (prints if whole else rare)[b]
            common = one[0].keys() & other[0].keys()
            if common:
                lines = tuple(
                    frozenset(n for h in common for n in own_prints[0][h])
                    for own_prints in (one, other)
                )
                found.append(
                    SimilarPair(
                        a,
                        b,
                        name,
                        overlap_share(one[0], other[0]),
                        overlap_share(one[1], other[1]),
                        len(common),
                        (lines[0], lines[1]),
                    )
                )
    return sorted(found, key=lambda pair: (-pair.share, -pair.common, pair.a, pair.b))


def drop_common(prints: Prints, given: Prints) -> Prints:
    """Return ``prints`` without the fingerprints that ``given``, the skeleton, also has."""
    return {h: lines for h, lines in prints.items() if h not in given}


def is_copy(a: Prints, b: Prints) -> bool:
    """Return whether two files share so many fingerprints, at least `MIN_COPY_SHARE` of the larger
    one's and `MIN_COPY_FINGERPRINTS`, that one is a copy."""
    return len(a.keys() & b.keys()) >= max(
        MIN_COPY_FINGERPRINTS, MIN_COPY_SHARE * max(len(a), len(b))
    )


def overlap_share(a: Prints, b: Prints) -> float:
    """Return the fraction of the smaller file's fingerprints that both have; 0 if it has none."""
    smaller = min(len(a), len(b))
    return len(a.keys() & b.keys()) / smaller if smaller else 0.0


def select_suspicious(
    found: Sequence[SimilarPair], pairs: int, most: int = 20, least: float = 0.5
) -> list[SimilarPair]:
    """Return the first ``most`` pairs to inspect, in the order of ``found``: with
    `MIN_SHARED_FINGERPRINTS` or more in common, and a share of at least ``least`` and half-way from
    the median of all pairs to 1, or of at least `MIN_COPY_SHARE`. Renaming changes nothing, because
    it is the first thing to do for anyone who copies.

    Args:
        found: pairs that have something in common.
        pairs: number of all pairs.
    """
    long = [pair for pair in found if pair.common >= MIN_SHARED_FINGERPRINTS]
    shares = sorted((pair.share for pair in long), reverse=True)
    middle = shares[pairs // 2] if 1 < pairs // 2 < len(shares) else 0.0
    bar = max(least, (1 + middle) / 2)
    return [pair for pair in long if pair.share >= min(bar, MIN_COPY_SHARE)][:most]
