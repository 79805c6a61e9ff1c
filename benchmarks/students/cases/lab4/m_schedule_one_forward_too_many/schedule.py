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
    result = []
    for s in range(stages):
        if kind == "gpipe":
            passes = [(d, k) for d in "FB" for k in range(micro_batches)]
        else:
            warm = min(stages - s, micro_batches)
            passes = [("F", k) for k in range(warm)]
            done = 0
            for k in range(warm, micro_batches):
                passes += [("F", k), ("B", done)]
                done += 1
            passes += [("B", k) for k in range(done, micro_batches)]
        result.append(passes)
    return result
    # your code: end
