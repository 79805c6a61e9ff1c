"""A request of `dualml simulate` about a pipeline: its schedule and times, and the answer as
JSON."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dualml.common.errors import UserError
from dualml.common.files import read_bytes
from dualml.common.json_types import JsonObject
from dualml.common.parse import from_json, from_toml
from dualml.parallel.split.order import validate
from dualml.parallel.split.schedule import Grid
from dualml.parallel.split.schedules import bubble, build, live_bound
from dualml.planning.cost import units
from dualml.planning.cost.link import Link
from dualml.planning.cost.pipeline import PipelineTimeline, message_s, simulate_pipeline

#: Limits of a layout: ranks, and passes of all ranks together.
MAX_RANKS, MAX_PASSES = 64, 200_000
RANKS, MICRO_BATCHES = 4, 8
#: Largest file with a grid in bytes: some bytes per pass.
MAX_GRID_BYTES = 20 * MAX_PASSES


@dataclass(frozen=True)
class PipelineRequest:
    """One update of a pipeline to be simulated.

    Args:
        name: name of the schedule; None for a grid from a file.
        grid: the schedule itself.
        forward_s, backward_s: seconds of one micro-batch in each stage, or in all; None: only
            ticks.
        transfer_s: seconds of one message between two stages.
        update_s: seconds of the optimizer.
    """

    name: str | None
    grid: Grid
    forward_s: tuple[float, ...] | None = None
    backward_s: tuple[float, ...] | None = None
    transfer_s: float = 0.0
    update_s: float = 0.0

    @cached_property
    def theoretical_bubble(self) -> float | None:
        """Theoretical share of idle ticks; None if the schedule, or its order of stages on ranks,
        has no textbook formula."""
        p, stages = self.grid.ranks, self.grid.stages
        if self.name is None or self.grid.owners != tuple(range(p)) * (stages // p):
            return None
        if self.name == "interleaved":
            return bubble(p, self.grid.micro_batches, stages // p)
        if self.name == "naive":
            return 1 - 1 / p
        return bubble(p, self.grid.micro_batches) if stages == p else None

    @cached_property
    def live(self) -> list[int]:
        """Largest number of activations that each rank holds at once."""
        return [self.grid.live(rank) for rank in range(self.grid.ranks)]

    @cached_property
    def bounds(self) -> list[int] | None:
        """Largest number of activations that each rank may hold; None for a grid from a file."""
        if self.name is None:
            return None
        owners, m = self.grid.owners, self.grid.micro_batches
        return [live_bound(self.name, owners, m, rank) for rank in range(self.grid.ranks)]

    @cached_property
    def timeline(self) -> PipelineTimeline | None:
        """Simulated timeline in seconds; None without times."""
        if self.forward_s is None or self.backward_s is None:
            return None
        there, back = (
            times[0] if len(times) == 1 else times for times in (self.forward_s, self.backward_s)
        )
        return simulate_pipeline(self.grid, there, back, self.transfer_s, self.update_s)

    def describe(self) -> JsonObject:
        """Return as JSON-compatible values the schedule and its grid, the share of idle ticks and
        its theory, the largest number of live activations of each rank and its bound, and the
        timeline in seconds (None without times)."""
        return {
            "schedule": self.name,
            "ranks": self.grid.ranks,
            "stages": self.grid.stages,
            "ticks": self.grid.ticks,
            "grid": self.grid.describe(),
            "idle": self.grid.idle(),
            "theory": self.theoretical_bubble,
            "live": self.live,
            "live_bound": self.bounds,
            "transfer_s": self.transfer_s,
            "timeline": None if self.timeline is None else self.timeline.describe(),
        }


def grid_from_options(
    name: str | None,
    path: Path | None,
    ranks: str | None,
    micro_batches: int | None,
    chunks: int | None,
    owners: str | None,
) -> Grid:
    """Build the schedule that the options describe: the grid of the file ``path``, or the schedule
    ``name``, by default for 4 ranks, 8 micro-batches, and 1 stage on each rank (2 if interleaved).
    None stands for an option that is not given.

    Args:
        ranks: number of ranks as text.
        chunks: stages on each rank.
        owners: comma-separated rank of each stage, in place of ``ranks`` and ``chunks``.

    Raises:
        UserError: options that contradict one another, or a grid that cannot run.
        OSError: the file is missing or cannot be read.
    """
    if path is not None:
        if any(given is not None for given in (name, ranks, micro_batches, chunks, owners)):
            raise UserError(
                "--grid brings the whole schedule; leave out --pipeline, --ranks, "
                "--micro-batches, --chunks and --owners"
            )
        return read_grid(path)
    if name is None:
        raise UserError("say which pipeline: --pipeline 1f1b, or --grid FILE")
    m = MICRO_BATCHES if micro_batches is None else micro_batches
    if owners is not None:
        if ranks is not None or chunks is not None:
            raise UserError("--owners says which rank has each stage; leave out --ranks, --chunks")
        dealt = _parse_integers(owners)
    else:
        (p, *more) = _parse_integers(ranks or str(RANKS), "--ranks")
        v = (2 if name == "interleaved" else 1) if chunks is None else chunks
        if more or p < 1 or v < 1:
            raise UserError(
                "a pipeline has one number of ranks and of chunks on each, from 1, as in "
                f"--ranks 4 --chunks 2; received {ranks or RANKS} and {v}"
            )
        _check_size(p, p * v * max(m, 1))
        dealt = tuple(range(p)) * v
    _check_size(max(dealt) + 1, len(dealt) * max(m, 1))
    return build(name, dealt, m)


def _check_size(p: int, passes: int) -> None:
    """Raise `UserError` if the pipeline is too large to lay out: ``p`` ranks, and ``passes``
    forward passes of all ranks together, each with a backward pass."""
    if p > MAX_RANKS or 2 * passes > MAX_PASSES:
        raise UserError(
            f"a pipeline is laid out for up to {MAX_RANKS} ranks and {MAX_PASSES:,} passes; "
            f"received {p} ranks and {2 * passes:,} passes"
        )


def _parse_integers(text: str, what: str = "--owners") -> tuple[int, ...]:
    """Parse comma-separated whole numbers of at most six digits; raise `UserError` for anything
    else."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() and len(word) < 7 for word in words):
        raise UserError(f"{what} {text!r}: write whole numbers, as in 0,1,0")
    return tuple(map(int, words))


def read_grid(path: Path) -> Grid:
    """Read a schedule from a file: JSON or TOML with ``rows`` (and ``owners``), or text with one
    line per rank.

    Raises:
        UserError: the file is too large or has none of these forms, or its schedule cannot run.
        OSError: the file is missing or cannot be read.
    """
    try:
        content = read_bytes(path, MAX_GRID_BYTES)
        text = content.decode("utf-8")
        if path.suffix == ".json":
            rows = from_json(content)
            grid = Grid.restore(rows if isinstance(rows, dict) else {"rows": rows})
        elif path.suffix == ".toml":
            grid = Grid.restore(from_toml(text))
        else:
            grid = Grid.read(text)
        validate(grid)
    except ValueError as error:  # includes invalid UTF-8, JSON and TOML
        raise UserError(f"{path}: {' '.join(str(error).split())}") from None
    return grid


def parse_pass_times(text: str, what: str, stages: int) -> tuple[float, ...]:
    """Parse one time, ``1ms``, or one per stage, ``1ms,2ms``, into as many seconds; raise
    `UserError` for any other number of times, or a text that is no time. ``what`` is the option's
    name in messages."""
    times = tuple(units.parse_seconds(part, what) for part in text.split(","))
    if len(times) not in (1, stages):
        raise UserError(f"{what} is one time, or one for each of {stages} stages; got {len(times)}")
    return times


def request_from_options(
    name: str | None,
    grid: Grid,
    link: Link,
    *,
    forward: str | None,
    backward: str | None,
    update: str | None,
    size: str | None,
) -> PipelineRequest:
    """Make the request from the options about time, texts such as ``1ms``. Without ``backward`` a
    backward pass takes twice as long as a forward pass. Without ``forward`` the request has no
    seconds.

    Args:
        name: name of the schedule; None for a grid from a file.
        link: α and β of a message between two stages.
        forward, backward: one time, or one for each stage, separated by commas.
        update: time of the optimizer; None: 0.
        size: bytes of a message, such as ``4MB``; None: messages take no time.

    Raises:
        UserError: another option about time without ``forward``, or a text that cannot be parsed.
    """
    if forward is None:
        late = {"--backward": backward, "--update": update, "--size": size}
        given = [option for option, value in late.items() if value is not None]
        if given:
            raise UserError(f"{' and '.join(given)}: a pipeline in seconds needs --forward, too")
        return PipelineRequest(name, grid)
    there = parse_pass_times(forward, "--forward", grid.stages)
    back = tuple(2 * seconds for seconds in there)
    if backward is not None:
        back = parse_pass_times(backward, "--backward", grid.stages)
    (moving,) = (0.0,) if size is None else message_s(units.parse_bytes(size, "--size"), link)
    waits = units.parse_seconds(update or "0", "--update")
    return PipelineRequest(name, grid, there, back, moving, waits)
