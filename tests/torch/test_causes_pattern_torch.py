"""A setting that both sides state differently, where no array alone lies outside of the margin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from causes_cases import inputs, mutation_keys, sgd, trace
from torch import nn

from dualml.parity.causes.graph_host import GraphHost
from dualml.parity.causes.inquiry import Budget
from dualml.parity.causes.replay import read_search, replay
from dualml.parity.causes.search import search
from dualml.parity.models.judge import JudgingSettings, judge_traces
from dualml.parity.search_log import SEARCH_LOG
from dualml_torch.models import losses, module_settings, step
from dualml_torch.parity.causes.explore import Explorer, MutatingRecorder

JUDGE = JudgingSettings(margin=20.0, sides=("A", "B"))


class Norms(nn.Module):
    """Parallel blocks of a linear layer and a norm."""

    eps = 1e-5

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6, self.eps)) for _ in range(4)
        )
        self.head = nn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        y = sum(torch.sigmoid(block(x)) for block in self.blocks)
        return self.head(y[:, 0])


class OtherNorms(Norms):
    eps = 1.2e-5


def test_an_epsilon_inside_of_the_margin_is_a_pattern_and_named(tmp_path: Path) -> None:
    a, b = trace(Norms, sgd, 1), trace(OtherNorms, sgd, 1)
    found = judge_traces(a, b, JUDGE)
    assert (found.verdict, found.reason) == ("different", "pattern")
    assert found.first is not None
    assert found.first.type == "LayerNorm"
    torch.manual_seed(0)
    model = Norms()
    recorder = MutatingRecorder(model, None, sgd(model.parameters()), steps=1, draws=0)
    loss = losses()["cross_entropy"]
    explorer = Explorer(recorder, lambda r: step(model, loss, r.optimizer, r), inputs(), 1)
    stated = module_settings(model), module_settings(OtherNorms())
    host = GraphHost(a, b, explorer, JUDGE, settings_of=stated)
    explained, log = search(host, Budget(60.0, stated=True), host.evaluate)
    assert mutation_keys(explained) == [("attribute", "set", "eps", 1.2e-5)]
    assert explained.equal
    assert explained.tried == [1, 1]
    log.write(tmp_path / SEARCH_LOG)
    assert replay(read_search(tmp_path / SEARCH_LOG)).causes == explained.causes
