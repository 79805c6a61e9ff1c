"""Read two folders as traces: written by Recorders, or dumps of the same tool."""

from __future__ import annotations

from pathlib import Path

from dualml.common.errors import UserError
from dualml.experiment.comparison import Note
from dualml.parity.models.imported import msprobe, troubleshooter
from dualml.parity.models.imported.dump import Dump
from dualml.parity.models.trace import HEAD, Trace
from dualml.parity.ranks.explaining import read_whole_trace
from dualml.parity.ranks.rank_files import has_ranks


def read_pair(a: Path, b: Path) -> tuple[Trace, Trace, tuple[Note, ...]]:
    """Read two folders, and return both traces and notes for the result of their comparison.

    Unless both dumps have the numbers of every tensor, their statistics are compared.

    Raises:
        UserError: a folder has neither a trace nor a dump, or the two are not of the same kind.
    """
    tools = [detect_tool(folder) for folder in (a, b)]
    if tools == ["", ""]:
        return read_whole_trace(a), read_whole_trace(b), ()
    if tools[0] != tools[1]:
        found = [
            f"{folder} is {f'a dump of {tool}' if tool else 'none of a known tool'}"
            for folder, tool in zip((a, b), tools, strict=True)
        ]
        raise UserError(f"{found[0]}, {found[1]}; two of one tool can be compared")
    dumps = [read_dump(folder, tool) for folder, tool in zip((a, b), tools, strict=True)]
    summarised = not all(dump.is_complete for dump in dumps)
    one, other = (dump.to_trace(summarised) for dump in dumps)
    notes = [Note("statistics")] if summarised else []
    if any(dump.pickled and not dump.is_complete for dump in dumps):
        notes.append(Note("pickled"))
    return one, other, tuple(notes)


def detect_tool(folder: Path) -> str:
    """Return the name of the tool that wrote a dump; empty if it is unknown, and for a trace."""
    if (folder / HEAD).is_file() or has_ranks(folder):
        return ""
    if troubleshooter.info_files(folder):
        return troubleshooter.TOOL
    return msprobe.TOOL if msprobe.find_dump_files(folder) else ""


def read_dump(folder: Path, tool: str) -> Dump:
    """Read and return a dump of the tool with this name; raise `UserError` if it cannot be read."""
    return msprobe.read(folder) if tool == msprobe.TOOL else troubleshooter.read(folder)
