"""Split models against the whole ones, judged like n workers against one."""

from __future__ import annotations

from dualml.report.topics import Topic
from dualml.report.topics.serial import Against

SPLIT = Against(split=True)
TOPIC = Topic("split_serial", 715, SPLIT.evidence, SPLIT.findings, leads=lambda run: 4)
