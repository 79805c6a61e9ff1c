import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

kind, folder = sys.argv[1:]
torch.manual_seed(34)
maker = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6))
judge = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
gan = nn.ModuleDict({"maker": maker, "judge": judge})
maker_step = torch.optim.Adam(maker.parameters(), lr=1e-3)
judge_step = torch.optim.Adam(judge.parameters(), lr=1e-3)
recorder = Recorder(gan, folder, judge_step, steps=2)
loss_of = nn.functional.binary_cross_entropy_with_logits


def update(real, noise):
    gan.zero_grad()
    fake = maker(noise)
    loss_of(judge(fake), torch.ones(len(fake), 1)).backward()
    maker_step.step()
    if kind == "cleared":
        judge_step.zero_grad()
    seen = judge(torch.cat([real, fake.detach()]))
    truth = torch.cat([torch.ones(len(real), 1), torch.zeros(len(fake), 1)])
    loss = loss_of(seen, truth)
    loss.backward()
    recorder.saw(loss=loss)
    judge_step.step()


for _ in range(3):
    recorder.run(update, 1 + torch.randn(12, 6), torch.randn(12, 4))
