"""Lab 4: in which order the stages of a pipeline go through the micro-batches."""

from __future__ import annotations


def schedule(stages: int, micro_batches: int, kind: str) -> list[list[tuple[str, int]]]:
    """The passes of every stage, in order.

    Stage s can go forward with micro-batch m after stage s − 1 has, and backward after stage s + 1
    has gone backward (the last stage: after its own forward). Of two orders that take the same
    time, the one in which a stage keeps fewer micro-batches is the better one.

    Args:
        stages: p, how many stages there are.
        micro_batches: m, how many micro-batches an update has.
        kind: ``gpipe``: all forward passes, then all backward passes; ``1f1b``: stage s (from 0)
            goes forward with p − s − 1 micro-batches (or all there are), then one forward and one
            backward in turn, then backward with the rest. So it keeps p − s at most.

    Returns:
        for each stage a list of ``("F", m)`` and ``("B", m)``, m from 0.
    """
    # your code: begin
    def one_f_one_b(s):
        order, kept = [], []
        for k in range(micro_batches):
            order.append(("F", k))
            kept.append(k)
            if len(kept) >= stages - s:
                order.append(("B", kept.pop()))
        while kept:
            order.append(("B", kept.pop()))
        return order

    if kind == "1f1b":
        return [one_f_one_b(s) for s in range(stages)]
    everything = [("F", k) for k in range(micro_batches)]
    everything += [("B", k) for k in range(micro_batches)]
    return [list(everything) for _ in range(stages)]
    # your code: end
