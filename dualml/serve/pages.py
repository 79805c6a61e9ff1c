"""The pages: the list of runs and jobs, one run, several runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

from markupsafe import Markup

from dualml.errors import UserError
from dualml.files import is_regular, resolved
from dualml.jobs.store import Jobs
from dualml.report.blocks import Block, Card, Notice, Prose, Row
from dualml.report.page.html import tag
from dualml.serve import figures, tables
from dualml.serve.cache import Cache
from dualml.serve.controls import form, select
from dualml.serve.found import MOST, UNREAD, Found, listing, look_at_all, newest
from dualml.serve.jobs import Board, Kept
from dualml.serve.load import load_of
from dualml.serve.logs import LAST, Piece, inside, logs, read
from dualml.serve.ranks import ranks
from dualml.serve.run import Seen, Watch
from dualml.serve.shell import Live, Part, live, page
from dualml.store.report import report_path
from dualml.words import LANGUAGES, Words

#: Maximum number of runs side by side.
SIDE_BY_SIDE = 8
AXES = ("updates", "epochs", "seconds")
#: Query of a URL: name → values.
Query = Mapping[str, Sequence[str]]


@dataclass
class Pages:
    """All pages about the runs in ``root`` and the ``jobs``; several threads may use it.

    What two threads need is made once, and nobody waits for the page of another run.

    Raises:
        UserError: the run is not in the list, or cannot be read.
    """

    root: Path
    jobs: Jobs
    cache: Cache = field(default_factory=Cache)

    def __post_init__(self) -> None:
        self.watch = Watch(self.cache)
        self.board = Board(Kept(self.jobs.path, self.cache))

    def paths(self) -> dict[str, Path]:
        """Return all runs as name → run folder."""
        return listing(self.root, self.board.outs())

    def path(self, name: str) -> Path:
        """Return the folder of a run in the list."""
        if (path := self.paths().get(name)) is None:
            raise UserError(f"there is no run {name} in {self.root}, nor of a job")
        return path

    # --- pages --------------------------------------------------------------------------------

    def home(self, words: Words) -> str:
        """Render the page with all runs and jobs."""
        found = look_at_all(self.cache, self.paths())
        known = {resolved(run.path): run for run in found}
        queue: list[Block]
        try:
            rows = self.board.rows()
            queue = [tables.jobs(rows, known, words) if rows else Prose(words("jobs.none"))]
        except UserError as error:
            rows, queue = [], [Notice(str(error))]
        shown, everything = newest(found), list[Block]()
        if not shown:
            everything = [Prose(words("serve.no_run", folder=str(self.root)))]
        else:
            everything = [tables.runs(shown[:MOST], words, choose=True)]
        if len(shown) > MOST:
            everything.append(Prose(words("serve.more", n=len(shown) - MOST), small=True))
        choice = tag("form", tag("button", words("serve.together"), type="submit"), id="choice",
                     method="get", action="/run")  # fmt: skip
        busy = any(run.state in ("running", UNREAD) for run in found)
        busy = busy or any(row.state.status in ("queued", "running") for row in rows)
        parts = [
            Part("runs", words("serve.part.runs"), [live(*everything), *([choice] * bool(shown))]),
            Part("jobs", words("serve.part.jobs"), [live(*queue)]),
        ]
        about = words("serve.about", folder=str(self.root))
        return page(words, words("serve.title"), about, parts, languages=in_languages("/", {}),
                    home=True, at_work=busy)  # fmt: skip

    def runs(self, query: Query, words: Words, *, bare: bool = False) -> str:
        """Render the page of one run, or of several side by side.

        Args:
            without_log: leave out the text of the log, which the script reads separately.
        """
        names = list(dict.fromkeys(query.get("run", ())))
        if not 1 <= len(names) <= SIDE_BY_SIDE:
            raise UserError(words("serve.choose_some", n=len(names), most=SIDE_BY_SIDE))
        paths = self.paths()
        if missing := [name for name in names if name not in paths]:
            raise UserError(words("serve.unknown", run=missing[0]))
        seen = [self.watch.look(name, paths[name]) for name in names]
        if len(seen) == 1:
            return self.one(seen[0], query, words, bare)
        return self.several(seen, query, words)

    def one(self, seen: Seen, query: Query, words: Words, bare: bool) -> str:
        """Render the page of one run."""
        run, title = seen.found, seen.record.experiment.get("title") or {}
        parts = [
            Part("state", words("serve.part.state"), [live(*self.state(run, words))]),
            Part("curves", words("serve.part.curves"), self.curves([seen], query, words)),
            Part("verdicts", words("serve.part.verdicts"),
                 [live(*tables.verdicts(run.path, self.cache, words))]),
            Part("trials", words("serve.part.trials"), [live(*tables.trials(seen, words))]),
        ]  # fmt: skip
        load = load_of(run.path, words)
        there = logs(run.path, seen, self.board.logs(run.path))
        kept = keep(query, "trial", "log")
        trial, table = ranks(
            self.watch, seen, chosen(query, "trial"), load.machines, there, kept, words
        )
        options = {tables.key(t): tables.label(t, words) for t in seen.trials}
        choice = [select("trial", words("serve.trial"), options, trial)]
        asked = form(choice, keep(query, "trial"), words, "ranks")
        parts.append(Part("ranks", words("serve.part.ranks"), [asked, live(*table)]))
        if load.blocks:
            parts.append(Part("load", words("serve.part.load"), [live(*load.blocks)]))
        parts.append(Part("log", words("serve.part.log"), self.log(there, run, query, words, bare)))
        about = title.get(words.lang, "") if isinstance(title, dict) else ""
        return page(words, run.id, about or run.name, parts, home=False,
                    languages=in_languages("/run", query),
                    at_work=run.state == "running")  # fmt: skip

    def several(self, seen: Sequence[Seen], query: Query, words: Words) -> str:
        """Render the page that compares several runs."""
        found = [each.found for each in seen]
        cards = [Card(run.id, tables.verdicts(run.path, self.cache, words), code=True)
                 for run in found]  # fmt: skip
        parts = [
            Part(
                "state", words("serve.part.state"), [live(tables.runs(found, words, choose=False))]
            ),
            Part("curves", words("serve.part.curves"), self.curves(seen, query, words)),
            Part("results", words("serve.part.results"), [live(tables.results(seen, words))]),
            Part("verdicts", words("serve.part.verdicts"), [live(Row(cards))]),
        ]  # fmt: skip
        about = words.join([run.id for run in found])
        return page(words, words("serve.side_by_side", n=len(seen)), about, parts, home=False,
                    languages=in_languages("/run", query),
                    at_work=any(run.state == "running" for run in found))  # fmt: skip

    # --- parts --------------------------------------------------------------------------------

    def state(self, run: Found, words: Words) -> list[Block]:
        """Make the section about the state of a run."""
        blocks: list[Block] = [tables.runs([run], words, choose=False)]
        if is_regular(report_path(run.path)):
            link = tag("a", words("serve.report"), href=tables.address("report", run=run.id))
            blocks.append(Prose(link))
        return [*blocks, Prose(str(run.path), small=True)]

    def curves(self, runs: Sequence[Seen], query: Query, words: Words) -> list[Markup | Live]:
        """Make the section with the curves, and the controls to choose them."""
        metrics = {m: words(f"serve.metric.{m}") for m in figures.metrics(runs)}
        axes = {axis: words(f"axis.{axis}") for axis in AXES}
        metric, axis = chosen(query, "metric", metrics), chosen(query, "axis", axes)
        groups = figures.choices(runs, words)
        group = chosen(query, "group", groups)
        arms = groups[group][1] if group else ()
        choice = [select("metric", words("serve.metric_of"), metrics, metric),
                  select("axis", words("serve.axis"), axes, axis)]  # fmt: skip
        if len(groups) > 1:
            labels = {name: label for name, (label, _) in groups.items()}
            choice.append(select("group", words("serve.group"), labels, group))

        def draw() -> Live:
            if len(runs) == 1:
                return live(figures.one_run(runs[0], arms, metric, axis, words))
            return live(figures.several(runs, arms, metric, axis, words))

        drawn = [(seen.found.id, t.record.key, t.state, t.size) for seen in runs
                 for t in seen.trials if t.record.arm in arms]  # fmt: skip
        shown = self.cache.of(("figure", metric, axis, words.lang, *arms), drawn, draw)
        return [form(choice, keep(query, "metric", "axis", "group"), words, "curves"), shown]

    def log(
        self, there: Mapping[str, Path], run: Found, query: Query, words: Words, bare: bool
    ) -> list[Markup | Live]:
        """Make the section with a log, and the controls to choose it."""
        if not there:
            return [live(Prose(words("serve.no_log"), small=True))]
        wanted = chosen(query, "log", there)
        choice = [select("log", words("serve.log_of"), {n: n for n in there},
                         wanted)]  # fmt: skip
        piece = Piece("", 0, 0) if bare else read(there[wanted])
        follow = tag("label", Markup('<input type="checkbox" id="follow" checked>'),
                     " " + words("serve.follow"), class_="follow")  # fmt: skip
        shown = tag("pre", piece.text, id="text", tabindex="0", role="log", data_end=str(piece.end),
                    data_log=tables.address("log", run=run.id, log=wanted),
                    data_most=str(4 * LAST), data_empty=words("serve.no_log"),
                    aria_label=wanted)  # fmt: skip
        return [form(choice, keep(query, "log"), words, "log"), follow, shown]

    # --- files --------------------------------------------------------------------------------

    def piece(self, query: Query) -> Piece:
        """Return the next chunk of a log."""
        name = chosen(query, "run")
        path = self.path(name)
        there = logs(path, self.watch.look(name, path), self.board.logs(path))
        log, after = there.get(chosen(query, "log")), chosen(query, "after")
        if log is None:
            raise UserError(f"{name}: there is no such log")
        return read(log, int(after) if after.isdecimal() and len(after) < 19 else None)

    def report(self, query: Query) -> Path:
        """Return the path of a run's report.

        Raises:
            UserError: there is no report, or it is a link out of the folder.
        """
        run = self.path(chosen(query, "run"))
        path = report_path(run)
        if not is_regular(path) or not inside(path, run):
            raise UserError(f"{run} has no report")
        return path


def chosen(query: Query, name: str, known: Mapping[str, object] | None = None) -> str:
    """Return the value of a query parameter; if it is not in ``known``, the first known value."""
    value = (query.get(name) or [""])[0]
    return value if known is None or value in known else next(iter(known), "")


def keep(query: Query, *names: str) -> dict[str, Sequence[str]]:
    """Return the query without these parameters, for a form that sets them."""
    return {name: values for name, values in query.items() if name not in (*names, "lang", "live")}


def in_languages(path: str, query: Query) -> dict[str, str]:
    """Return language → URL of the same page in that language."""
    kept = keep(query)
    return {lang: f"{path}?{urlencode({**kept, 'lang': lang}, doseq=True)}" for lang in LANGUAGES}
