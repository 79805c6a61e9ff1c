# %% [markdown] lang="en"
# # Lab 4: where is the bubble?
#
# A network of seven layers is cut in two. Node 0 has the first half, node 1 the second one, and four
# micro-batches follow one another through both. A node that has nothing to do is in the bubble.

# %% [markdown] lang="zh"
# # 实验四：气泡在哪里？
#
# 一个七层的网络切成两段：0 号节点负责前一半，1 号节点负责后一半，四个微批次依次流过。节点无事可做的时间就是气泡。

# %%
from pathlib import Path

import matplotlib.pyplot as plt

import dualml
from dualml.parallel.split.schedules import SCHEDULES

LANG = "en"
ARMS = ["deep-naive", "deep-gpipe", "deep-1f1b"]
for name in ("naive", "gpipe", "1f1b"):
    grid = SCHEDULES[name]([0, 1], 4)  # stage → node, micro-batches
    idle = 1 - len(grid.program(0)) / grid.ticks
    print(f"{name}: in {grid.ticks} ticks each node idles for {idle:.0%}\n{grid}\n")

# %% [markdown] lang="en"
# That is the paper: passes of equal length, messages that take no time. Now the machine.

# %% [markdown] lang="zh"
# 这是纸上的计算：每次前向或反向一样长，消息不花时间。再看实际的机器。

# %%
folder = Path("runs/lab4")
if not folder.exists():
    dualml.run(
        "lab4",
        backend="torch",
        arms=["deep", *ARMS],
        quick=True,
        out=folder,
        report=False,
        progress=False,
    )
run = dualml.load(folder)
columns = ["arm", "backend", "final_loss", "test_accuracy", "train_s", "verdict"]
run.frame("trials")[columns].round(3)

# %%
COLORS = {0: "tab:blue", 1: "tab:orange"}  # forward, backward
figure, axes = plt.subplots(len(ARMS), 1, figsize=(8, 4.2), sharex=True, layout="constrained")
for ax, arm in zip(axes, ARMS, strict=True):
    events = run.trial(arm).timelines
    update = events[0]["step"].max() - 5  # one of the last
    start = min(rank["begin"][rank["step"] == update].min() for rank in events)
    for node, rank in enumerate(events):
        for kind, color in COLORS.items():
            of = (rank["step"] == update) & (rank["kind"] == kind)
            begin, end = 1e3 * (rank["begin"][of] - start), 1e3 * (rank["end"][of] - start)
            spans = list(zip(begin, end - begin, strict=True))
            ax.broken_barh(spans, (node - 0.4, 0.8), color=color, edgecolor="white")
    ax.set(title=arm, yticks=[0, 1])
    ax.invert_yaxis()
label = axes[-1].set_xlabel("ms")

# %% [markdown] lang="en"
# Blue is forward, orange backward, white the bubble. For p nodes and m micro-batches the schedule
# leaves idle (p − 1)/(m + p − 1) = 20 % with 1F1B and GPipe. Measured it is more: passes differ in
# length, messages take time, and a node is a core, which other programs on this machine want, too.
# The median over all updates:

# %% [markdown] lang="zh"
# 蓝色是前向，橙色是反向，白色是气泡。p 个节点、m 个微批次时，1F1B 与 GPipe 的空闲为 (p − 1)/(m + p − 1) = 20%。
# 实测会更多：各次计算长短不一，消息要花时间，而且一个节点就是一个核，机器上的其他程序也要用它。全部更新的中位数：

# %%
for arm in ARMS:
    trial = run.trial(arm)
    held = max(rank["held_bytes"] for rank in trial.memory) / 2**20
    update = f"{1e3 * trial.step_s[1]:5.1f} ms an update"
    print(f"{arm:12} idle {trial.split['bubble']:4.0%}   {update}   {held:4.1f} MiB of activations")

# %% [markdown] lang="en"
# And what was cut must train as the whole does:

# %% [markdown] lang="zh"
# 切开之后的训练必须与完整的模型相同：

# %%
run.frame("verdicts")[["arm", "against", "verdict", "ratio"]].round(2)

# %% [markdown] lang="en"
# **Your turn.** More micro-batches make the bubble smaller. Why not 64 of them? Run the arms
# `micro-1` … `micro-16` and look at the time of an update.

# %% [markdown] lang="zh"
# **轮到你了。** 微批次越多，气泡越小。为什么不用 64 个？运行 `micro-1` … `micro-16`，看看一次更新的时间。
