"""Search for a patch of a port: undo one cause after the other, and compare after each."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dualml.common.json_types import JsonObject
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.patches.candidates import ranked_texts
from dualml.parity.patches.locations import (
    is_optimizer,
    most_similar_lines,
    operation_lines,
    optimizer_lines,
    original_lines,
    read_original,
    side_files,
)
from dualml.parity.patches.namespace import Namespace, read_namespaces
from dualml.parity.patches.progress import is_closer, measure_reach
from dualml.parity.patches.rewriting import PatchSite
from dualml.parity.patches.roles import Letter, reverse_cause
from dualml.parity.patches.source import (
    SourceFile,
    UnreadableSource,
    common_folder,
    encode_files,
    read_source,
    unified_diff,
)
from dualml.parity.patches.trials import Trials

#: Largest number of causes that are undone, and of trials for one cause.
MAX_ROUNDS, MAX_TRIES = 4, 30
#: Seconds that must be left for another search of causes.
MIN_SEARCH_S = 10.0


@dataclass
class PatchSearch:
    """One search for a patch of a port (a model rewritten for another framework).

    Attributes:
        trials: runs patched ports and compares them with the original.
        deadline: time of the monotonic clock until which it may search.
        originals: file → its text without the patch.
        current: file → its text with what was found so far.
        closest: the comparison with the patch found so far; None if there is none.
        reason: key of a message that says why there is no patch, or none that makes both sides
            equal.
        file: name of the file that the reason is about.
    """

    trials: Trials
    deadline: float
    originals: dict[Path, SourceFile] = field(default_factory=dict)
    current: dict[Path, SourceFile] = field(default_factory=dict)
    closest: ModelComparison | None = None
    reason: str = "none"
    file: str = ""

    @property
    def original_letter(self) -> Letter:
        """Letter of the side that is the original."""
        return "b" if self.trials.port == "a" else "a"

    @property
    def is_late(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() > self.deadline

    def undo_causes(self, found: ModelComparison) -> None:
        """Undo the causes of a comparison, one after the other, until both sides are equal or
        nothing brings them closer; set `current`, `closest` and `reason`."""
        explanation: Mapping[str, Any] | None = found.explanation
        folder, closest = self.trials.folder, found
        for _ in range(MAX_ROUNDS):
            causes = (explanation or {}).get("causes") or []
            if self.trials.port == "a":
                causes = [reverse_cause(one) for one in causes]
            if not causes:
                return
            # Where one cause explains everything, its inverse makes both sides equal.
            is_last = len(causes) == 1 and bool((explanation or {}).get("equal"))
            step = self.undo(causes[0], folder, closest, is_last)
            if step is None:
                return
            folder, closest, texts = step
            self.current.update(texts)
            self.closest = closest
            left = self.deadline - time.monotonic()
            if closest.equal:
                return
            if left < MIN_SEARCH_S:
                self.reason = "late"
                return
            explanation = self.trials.explain(folder, left)

    def undo(
        self, cause: Mapping[str, Any], folder: Path, found: ModelComparison, is_last: bool
    ) -> tuple[Path, ModelComparison, dict[Path, SourceFile]] | None:
        """Try the rewritings that may undo a cause, several at once, the likeliest first; return
        the trial's folder, comparison and changed files of the best one of the first group in which
        one succeeds; None if none does.

        Args:
            folder: folder of the comparison ``found``, whose first cause it is.
            is_last: whether a rewriting succeeds only if both sides are equal then; else it is
                enough that they agree further than in ``found``.
        """
        candidates, width = self.candidates(cause, folder), self.trials.width
        for at in range(0, len(candidates), width):
            if self.is_late:
                self.reason = "late"
                break
            several = candidates[at : at + width]
            patched = [{**self.current, one.path: one} for one in several]
            tried = self.trials.compare_all([encode_files(one) for one in patched])
            rows = [
                (measure_reach(comparison), number, place, comparison)
                for number, (place, comparison) in enumerate(tried)
                if comparison is not None
                and (comparison.equal or (not is_last and is_closer(comparison, found)))
            ]
            best = max(rows, key=lambda row: row[:1], default=None)
            for place, _ in tried:
                if best is None or place != best[2]:
                    self.trials.discard(place)
            if best is not None:
                one = several[best[1]]
                return best[2], best[3], {one.path: one}
        return None

    def candidates(self, cause: Mapping[str, Any], folder: Path) -> list[SourceFile]:
        """Return patched versions of the port's files, each of one file, that may undo a cause, the
        likeliest first, at most `MAX_TRIES`.

        Args:
            folder: folder of the comparison that found the cause.
        """
        original = read_original(self.trials.job, cause, self.original_letter)
        rows: list[list[SourceFile]] = []
        for path in self.port_files(cause, folder):
            port = self.read_port(path, folder)
            if port is None:
                continue
            other = cause["other"] or {}
            here = self.path_in(folder, path)
            lines = operation_lines(other, here, ("place", "built"))
            ours = [] if original is None else original_lines(cause, original)
            if not lines and is_optimizer(cause):
                lines = optimizer_lines(
                    port, self.trials.job["sides"][self.trials.port]["optimizer"]
                )
            if not lines and original is not None:
                lines = most_similar_lines(original, ours, port)
            site = PatchSite(
                port,
                self.namespaces([path]).get(path, Namespace()),
                cause["alterations"][0],
                tuple(dict.fromkeys(lines)),
                ((other.get("place") or {}).get("code") or "") if lines else "",
                original,
                tuple(dict.fromkeys(ours)),
                ((cause["place"] or {}).get("place") or {}).get("code") or "",
                other.get("attributes") or {},
            )
            texts = ranked_texts(site, cause["alterations"])
            rows.append([port.with_text(text) for text in texts[:MAX_TRIES]])
        merged = [
            one for number in range(MAX_TRIES) for row in rows for one in row[number : number + 1]
        ]
        return merged[:MAX_TRIES]

    def read_port(self, path: Path, folder: Path) -> SourceFile | None:
        """Return a file of the port as it is patched so far; None if it cannot be patched, with
        `reason` and `file` set."""
        if path in self.current:
            return self.current[path]
        try:
            source = read_source(path)
        except UnreadableSource as error:
            self.reason, self.file = str(error), path.name
            return None
        self.originals[path] = source
        return source

    def port_files(self, cause: Mapping[str, Any], folder: Path) -> list[Path]:
        """Return the files of the port where a cause may be: those of its lines, or else that of
        the model; for a cause in the optimizer always those of the optimizer and of the model.

        Args:
            folder: folder of the comparison that found the cause.
        """
        other = cause["other"] or {}
        places = [one["file"] for key in ("place", "built") if (one := other.get(key))]
        paths = [self.path_of(folder, Path(one).resolve()) for one in places]
        if not paths or is_optimizer(cause):
            known = side_files(self.trials.job, self.trials.port, is_optimizer(cause))
            paths = [Path(one).resolve() for one in known]
        return list(dict.fromkeys(paths))

    def path_of(self, folder: Path, path: Path) -> Path:
        """Return the user's file of which ``path``, a file in the folder of a trial, is the copy;
        ``path`` itself if it is no copy."""
        for file in self.current:
            if self.path_in(folder, file) == path:
                return file
        return path

    def path_in(self, folder: Path, path: Path) -> Path:
        """Return the copy of a user's file that the trial in ``folder`` ran; the file itself if it
        was not patched."""
        if folder == self.trials.folder or path not in self.current:
            return path
        matches = list((folder / "source").glob(f"*/**/{path.name}"))
        return next((one for one in matches if not one.is_symlink()), path)

    def namespaces(self, files: list[Path]) -> dict[Path, Namespace]:
        """Return file of the port → what its names mean, without files that cannot be read."""
        trials = self.trials
        side = trials.sides["ab".index(trials.port)]
        timeout = trials.job["timeout"]
        return read_namespaces(trials.folder, trials.port, side, files, timeout)

    def describe(self) -> JsonObject:
        """Return what was found as JSON, see `dualml.parity.patches.finding.find_patch`."""
        base = common_folder(self.current)
        pieces = [
            unified_diff(path, self.originals[path].text, source.text, base)
            for path, source in self.current.items()
        ]
        closest = self.closest
        verdict = "none" if closest is None else closest.verdict
        first = None if closest is None else closest.first
        return {
            "verdict": verdict,
            "reason": "" if verdict == "equal" else self.reason,
            "file": self.file,
            "diff": "".join(pieces),
            "folder": "" if base == Path.cwd() else str(base),
            "map": "",
            "tried": self.trials.count,
            "left": None
            if first is None
            else first.describe("step", "phase", "tensor", "distance"),
        }
