"""Find the causes of the differences in a run, by replays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dualml.backend import backends
from dualml.common.json_types import JsonObject
from dualml.common.words import Messages
from dualml.experiment.store.folder import RunFolder
from dualml.experiment.store.trial_comparison import RunVerdicts

if TYPE_CHECKING:
    from dualml.experiment.plan import Plan


def find_causes(
    folder: RunFolder,
    plan: Plan,
    environs: dict[str, dict[str, str]],
    verdicts: RunVerdicts,
    words: Messages,
    *,
    quiet: bool = False,
    most: int = 3,
) -> list[JsonObject]:
    """Search for the causes of differences and failures in a run by replays, and return the
    findings, a dict each; an empty list if every comparison is as expected and no trial has failed.

    The run folder gets ``findings.json``, where each finding also has a text, and the log of the
    search, ``search.jsonl``; both are written even if there is nothing to explain.

    Args:
        folder, plan: the run.
        environs: backend → variables of its workers; those of further backends are added.
        verdicts: the comparisons of the run's trials.
        words: messages in the user's language, for the progress.
        quiet: whether to show no progress.
        most: maximum number of findings.
    """
    from dualml.experiment.store.findings import write_findings
    from dualml.parity.finder.find import find_all, is_suspicious
    from dualml.parity.finder.paragraph import add_text
    from dualml.parity.finder.replays import ReplaySession
    from dualml.parity.search_log import SEARCH_LOG, SearchLog

    parity = verdicts.describe()
    judged = [*parity["comparisons"], *parity.get("serial", ())]
    trials = folder.trials.values()
    failed = any(trial.status == "failed" for trial in trials)
    if not failed and not any(is_suspicious(c) for c in judged):
        write_findings(folder.path, [])
        SearchLog().write(folder.path / SEARCH_LOG)
        return []
    from dualml.runner.session.progress import show_activity

    known = backends()
    for name in ("numpy", *(trial.backend for trial in trials)):
        if name in known and name not in environs and known[name].installed():
            environs[name] = known[name].environ(folder.run.options.threads)
    with show_activity(words("run.finding"), quiet=quiet) as update:
        session = ReplaySession(
            folder=folder,
            plan=plan,
            infos=known,
            environs=environs,
            progress=lambda text: update(words("run.finding_at", what=text)),
        )
        differences, log = find_all(session, parity, most)
    log.write(folder.path / SEARCH_LOG)
    write_findings(folder.path, [add_text(finding) for finding in differences])
    return differences
