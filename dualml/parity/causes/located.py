"""Locate a difference in two traces without running a model: place, settings and relations."""

from __future__ import annotations

from typing import Any, cast

from dualml.parity.causes.evidence import find_relations
from dualml.parity.causes.explanation import Explanation, Explorer
from dualml.parity.causes.graph_host import GraphHost
from dualml.parity.causes.graph_state import GraphState
from dualml.parity.causes.runs import MutatedRun
from dualml.parity.models.judge import JudgingSettings, judge_traces
from dualml.parity.models.operations import Operation
from dualml.parity.models.trace import Trace

#: Largest number of settings that are named.
MAX_SETTINGS = 6


def locate_difference(a: Trace, b: Trace, settings: JudgingSettings) -> Explanation:
    """Return where two traces begin to differ, as an explanation without causes: the first
    operations that differ, their settings, and relations between their results. Empty if they do
    not differ."""
    comparison = judge_traces(a, b, settings)
    first = comparison.first
    if first is None:
        return Explanation()
    host = GraphHost(a, b, cast("Explorer", None), settings)
    survey = GraphState(host, MutatedRun((), a, comparison)).survey
    x = a.find_array(first.phase, first.step, first.tensor)
    y = b.find_array(first.phase, first.step, first.other)
    evidence = [] if x is None or y is None else find_relations(x, y)
    rows = differing_settings(survey.place, survey.other)
    if rows:
        evidence.insert(0, {"key": "settings", "rows": rows})
    return Explanation(place=survey.place, other=survey.other, evidence=evidence)


def differing_settings(a: Operation | None, b: Operation | None) -> list[dict[str, Any]]:
    """Return up to MAX_SETTINGS settings in which two calls of one function differ, as rows
    ``{"name", "left", "right"}`` with the values as text; empty for calls of different functions,
    or if a call is None."""
    if a is None or b is None or a.name != b.name:
        return []
    names = [name for name in a.attributes if a.attributes[name] != b.attributes.get(name)]
    names += [name for name in b.attributes if name not in a.attributes]
    return [
        {"name": name, "left": str(a.attributes.get(name)), "right": str(b.attributes.get(name))}
        for name in names[:MAX_SETTINGS]
    ]
