"""Split a vector or a batch into n nearly equal parts."""

from __future__ import annotations


def part_start(length: int, n: int, part: int) -> int:
    """Return the index of the first element of part ``part`` of n nearly equal parts, both counted
    from 0, or ``length`` for part n; the first ``length mod n`` parts are one element longer.

    >>> [part_start(10, 4, part) for part in range(5)]
    [0, 3, 6, 8, 10]
    """
    short, longer = divmod(length, n)
    return part * short + min(part, longer)


def part_lengths(length: int, n: int) -> list[int]:
    """Return the lengths of n nearly equal parts of ``length`` elements together; the longer ones
    come first.

    >>> part_lengths(10, 4)
    [3, 3, 2, 2]
    """
    return [part_start(length, n, r + 1) - part_start(length, n, r) for r in range(n)]


def slice_lengths(length: int, n: int, full: int) -> list[int]:
    """Return the lengths of n consecutive slices of ``length`` elements: ``full // n`` each, as in
    a ``full`` batch; the last ones are shorter, or empty, where the elements run out; elements
    beyond n slices are in none.

    >>> slice_lengths(35, 2, 64)
    [32, 3]
    """
    return [min(full // n, max(0, length - r * (full // n))) for r in range(n)]
