"""The pages: the list of runs and jobs, one run, several runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

from markupsafe import Markup

from dualml.common.errors import UserError
from dualml.common.files import is_regular, resolve_links
from dualml.common.words import LANGUAGES, Messages
from dualml.experiment.store.report import report_path
from dualml.interface.serve import figures, tables
from dualml.interface.serve.cache import Cache
from dualml.interface.serve.controls import form, select_box
from dualml.interface.serve.jobs import CachedJobs, JobMonitor
from dualml.interface.serve.logs import TAIL_BYTES, LogChunk, is_inside, list_logs, read_log
from dualml.interface.serve.ranks import ranks_table
from dualml.interface.serve.run import RunView, RunWatcher
from dualml.interface.serve.shell import LiveBlock, make_live, make_section, render_page
from dualml.interface.serve.summaries import (
    MAX_RUNS,
    UNREAD,
    RunSummary,
    newest_first,
    runs_by_name,
    summarize_all,
)
from dualml.report.blocks import Block, Card, Notice, Prose, RowBlock
from dualml.report.live_usage import active_ranks
from dualml.report.live_usage import tables as usage_tables
from dualml.report.page.html import tag
from dualml.runner.jobs.store import Jobs

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
        UserError: by methods about a run that is not in the list, or cannot be read.
    """

    root: Path
    jobs: Jobs
    cache: Cache = field(default_factory=Cache)

    def __post_init__(self) -> None:
        self.watcher = RunWatcher(self.cache)
        self.monitor = JobMonitor(CachedJobs(self.jobs.path, self.cache))

    def run_paths(self) -> dict[str, Path]:
        """Return name in URLs → run folder, of all runs in ``root``, and of the jobs shown."""
        return runs_by_name(self.root, self.monitor.run_folders())

    def run_path(self, name: str) -> Path:
        """Return the folder of a run by its name in `run_paths`; raise `UserError` for any other
        name."""
        if (path := self.run_paths().get(name)) is None:
            raise UserError(f"there is no run {name} in {self.root}, nor of a job")
        return path

    # --- pages --------------------------------------------------------------------------------

    def home_page(self, words: Messages) -> str:
        """Render the page with the runs, at most `MAX_RUNS`, and the jobs."""
        found = summarize_all(self.cache, self.run_paths())
        known = {resolve_links(run.path): run for run in found}
        queue: list[Block]
        try:
            rows = self.monitor.rows()
            queue = [
                tables.make_jobs_table(rows, known, words) if rows else Prose(words("jobs.none"))
            ]
        except UserError as error:
            rows, queue = [], [Notice(str(error))]
        shown, everything = newest_first(found), list[Block]()
        if not shown:
            everything = [Prose(words("serve.no_run", folder=str(self.root)))]
        else:
            everything = [tables.make_runs_table(shown[:MAX_RUNS], words, selectable=True)]
        if len(shown) > MAX_RUNS:
            everything.append(Prose(words("serve.more", n=len(shown) - MAX_RUNS), small=True))
        choice = tag(
            "form",
            tag("button", words("serve.together"), type="submit"),
            id="choice",
            method="get",
            action="/run",
        )
        busy = any(run.state in ("running", UNREAD) for run in found)
        busy = busy or any(row.state.status in ("queued", "running") for row in rows)
        parts = [
            make_section("runs", words, [make_live(*everything), *([choice] * bool(shown))]),
            make_section("jobs", words, [make_live(*queue)]),
        ]
        about = words("serve.about", folder=str(self.root))
        return render_page(
            words,
            words("serve.title"),
            about,
            parts,
            languages=language_links("/", {}),
            home=True,
            is_running=busy,
        )

    def runs_page(self, query: Query, words: Messages, *, without_log: bool = False) -> str:
        """Render the page of one run, or of several side by side, that the query names; raise
        `UserError` for none, too many or unknown ones.

        Args:
            without_log: leave out the text of the log, which the script reads separately.
        """
        names = list(dict.fromkeys(query.get("run", ())))
        if not 1 <= len(names) <= SIDE_BY_SIDE:
            raise UserError(words("serve.choose_some", n=len(names), most=SIDE_BY_SIDE))
        paths = self.run_paths()
        if missing := [name for name in names if name not in paths]:
            raise UserError(words("serve.unknown", run=missing[0]))
        seen = [self.watcher.view_run(name, paths[name]) for name in names]
        if len(seen) == 1:
            return self.run_page(seen[0], query, words, without_log)
        return self.comparison_page(seen, query, words)

    def run_page(self, seen: RunView, query: Query, words: Messages, without_log: bool) -> str:
        """Render the page of one run."""
        run, title = seen.summary, seen.record.experiment.get("title") or {}
        parts = [
            make_section("state", words, [make_live(*self.state_part(run, words))]),
            make_section("curves", words, self.curves_part([seen], query, words)),
            make_section(
                "verdicts", words, [make_live(*tables.verdict_blocks(run.path, self.cache, words))]
            ),
            make_section("trials", words, [make_live(*tables.trial_blocks(seen, words))]),
        ]
        ranks = active_ranks(run.path)
        machines = {rank.rank: rank.now.host for rank in ranks}
        there = list_logs(run.path, seen, self.monitor.logs(run.path))
        wanted = query_value(query, "trial")
        trial, table = ranks_table(self.watcher, seen, wanted, machines, there, words)
        options = {tables.trial_key(t): tables.trial_label(t, words) for t in seen.trials}
        choice = [select_box("trial", words("serve.trial"), options, trial)]
        asked = form(choice, query_without(query, "trial"), words, "ranks")
        parts.append(make_section("ranks", words, [asked, make_live(*table)]))
        if ranks:
            parts.append(make_section("load", words, [make_live(*usage_tables(ranks, words))]))
        parts.append(
            make_section("log", words, self.log_part(there, run, query, words, without_log))
        )
        about = title.get(words.lang, "") if isinstance(title, dict) else ""
        return render_page(
            words,
            run.id,
            about or run.name,
            parts,
            home=False,
            languages=language_links("/run", query),
            is_running=run.state == "running",
        )

    def comparison_page(self, seen: Sequence[RunView], query: Query, words: Messages) -> str:
        """Render the page that compares several runs."""
        found = [each.summary for each in seen]
        cards = [
            Card(run.id, tables.verdict_blocks(run.path, self.cache, words), code=True)
            for run in found
        ]
        parts = [
            make_section(
                "state", words, [make_live(tables.make_runs_table(found, words, selectable=False))]
            ),
            make_section("curves", words, self.curves_part(seen, query, words)),
            make_section("results", words, [make_live(tables.make_results_table(seen, words))]),
            make_section("verdicts", words, [make_live(RowBlock(cards))]),
        ]
        about = words.join([run.id for run in found])
        return render_page(
            words,
            words("serve.side_by_side", n=len(seen)),
            about,
            parts,
            home=False,
            languages=language_links("/run", query),
            is_running=any(run.state == "running" for run in found),
        )

    # --- parts --------------------------------------------------------------------------------

    def state_part(self, run: RunSummary, words: Messages) -> list[Block]:
        """Make the blocks about the state of a run: a table of one row, a link to its report if
        there is one, and its path."""
        blocks: list[Block] = [tables.make_runs_table([run], words, selectable=False)]
        if is_regular(report_path(run.path)):
            link = tag("a", words("serve.report"), href=tables.page_url("report", run=run.id))
            blocks.append(Prose(link))
        return [*blocks, Prose(str(run.path), small=True)]

    def curves_part(
        self, runs: Sequence[RunView], query: Query, words: Messages
    ) -> list[Markup | LiveBlock]:
        """Make the section with the curves, and the controls to choose them."""
        metrics = {m: words(f"serve.metric.{m}") for m in figures.recorded_metrics(runs)}
        axes = {axis: words(f"axis.{axis}") for axis in AXES}
        metric, axis = query_value(query, "metric", metrics), query_value(query, "axis", axes)
        groups = figures.arm_groups(runs, words)
        group = query_value(query, "group", groups)
        if "group" not in query:  # the first one that has such a curve
            filled = (g for g in groups if figures.has_curves(runs, groups[g][1], metric))
            group = next(filled, group)
        arms = groups[group][1] if group else ()
        choice = [
            select_box("metric", words("serve.metric_of"), metrics, metric),
            select_box("axis", words("serve.axis"), axes, axis),
        ]
        if len(groups) > 1:
            labels = {name: label for name, (label, _) in groups.items()}
            choice.append(select_box("group", words("serve.group"), labels, group))

        def draw() -> LiveBlock:
            if len(runs) == 1:
                return make_live(figures.one_run_figure(runs[0], arms, metric, axis, words))
            return make_live(figures.runs_figure(runs, arms, metric, axis, words))

        drawn = [
            (seen.summary.id, t.record.key, t.state, t.size)
            for seen in runs
            for t in seen.trials
            if t.record.arm in arms
        ]
        shown = self.cache.get_or_create(("figure", metric, axis, words.lang, *arms), drawn, draw)
        return [
            form(choice, query_without(query, "metric", "axis", "group"), words, "curves"),
            shown,
        ]

    def log_part(
        self,
        there: Mapping[str, Path],
        run: RunSummary,
        query: Query,
        words: Messages,
        without_log: bool,
    ) -> list[Markup | LiveBlock]:
        """Make the section with the log that the query names, or the newest one, and the controls
        to choose it.

        Args:
            there: name → log file.
            run: the run.
            query: of the URL.
            words: messages in the user's language.
            without_log: leave out the text of the log.
        """
        if not there:
            return [make_live(Prose(words("serve.no_log"), small=True))]
        wanted = query_value(query, "log", there)
        choice = [select_box("log", words("serve.log_of"), {n: n for n in there}, wanted)]
        piece = LogChunk("", 0, 0) if without_log else read_log(there[wanted])
        follow = tag(
            "label",
            Markup('<input type="checkbox" id="follow" checked>'),
            " " + words("serve.follow"),
            class_="follow",
        )
        shown = tag(
            "pre",
            piece.text,
            id="text",
            tabindex="0",
            role="log",
            data_end=str(piece.end),
            data_log=tables.page_url("log", run=run.id, log=wanted),
            data_most=str(4 * TAIL_BYTES),
            data_empty=words("serve.no_log"),
            aria_label=wanted,
        )
        return [form(choice, query_without(query, "log"), words, "log"), follow, shown]

    # --- files --------------------------------------------------------------------------------

    def log_chunk(self, query: Query) -> LogChunk:
        """Return the chunk of the log that the query names, after its ``after`` bytes; raise
        `UserError` if there is no such run or log."""
        name = query_value(query, "run")
        path = self.run_path(name)
        there = list_logs(path, self.watcher.view_run(name, path), self.monitor.logs(path))
        log, after = there.get(query_value(query, "log")), query_value(query, "after")
        if log is None:
            raise UserError(f"{name}: there is no such log")
        return read_log(log, int(after) if after.isdecimal() and len(after) < 19 else None)

    def report_file(self, query: Query, lang: str = "en") -> Path:
        """Return the path of a run's report.

        Args:
            lang: language of the page that links to it. A run has one report, in its language.

        Raises:
            UserError: there is no report, or it is a link out of the folder.
        """
        run = self.run_path(query_value(query, "run"))
        path = report_path(run)
        if not is_regular(path) or not is_inside(path, run):
            raise UserError(f"{run} has no report")
        return path


def query_value(query: Query, name: str, known: Mapping[str, object] | None = None) -> str:
    """Return the first value of a query parameter, or an empty string without one; if ``known`` is
    given and lacks it, the first known value."""
    value = (query.get(name) or [""])[0]
    return value if known is None or value in known else next(iter(known), "")


def query_without(query: Query, *names: str) -> dict[str, Sequence[str]]:
    """Return the query without the parameters ``names``, which a form or link sets anew, and never
    with ``lang``, which a cookie keeps, or ``live``, which marks the script's own requests."""
    return {name: values for name, values in query.items() if name not in (*names, "lang", "live")}


def language_links(path: str, query: Query) -> dict[str, str]:
    """Return language → URL of the page ``path`` with the same query in that language."""
    kept = query_without(query)
    return {lang: f"{path}?{urlencode({**kept, 'lang': lang}, doseq=True)}" for lang in LANGUAGES}
