# %% [markdown] lang="en"
# # Lab 2: what does one slow node cost?
#
# Two processes train one network together and add up their gradients after each half of a batch.
# In two of the arms node 1 is slow: it computes ten times as long, or each of its messages is
# 50 ms late.

# %% [markdown] lang="zh"
# # 实验二：一个慢节点代价多大？
#
# 两个 rank 共同训练一个网络，各算半个批次，然后把梯度相加。其中两个方案里 1 号节点较慢：计算耗时十倍，或每条消息迟到
# 50 毫秒。

# %%
from pathlib import Path

import matplotlib.pyplot as plt

import dualml

LANG = "en"
ARMS = ["base-all-reduce", "slow-compute-all-reduce", "base-ring", "slow-latency-ring"]
EXACT = ["single", "ring-n2"]
folder = Path("runs/lab2")
if not folder.exists():
    dualml.run(
        "lab2",
        backend="torch",
        arms=[*EXACT, *ARMS],
        settings={
            "arms.slow-compute-all-reduce.straggler.compute": 10,
            "arms.slow-latency-ring.straggler.latency_s": 0.05,
        },
        quick=True,
        out=folder,
        report=False,
        progress=False,
    )
run = dualml.load(folder)
columns = ["arm", "backend", "final_loss", "test_accuracy", "train_s", "verdict"]
run.frame("trials")[columns].round(3)

# %% [markdown] lang="en"
# Where the time of an update goes, on each node: computing, waiting for the other one, and sending.
# The fast node is no faster for it: it waits for as long as the slow one needs.

# %% [markdown] lang="zh"
# 各节点上一次更新的时间去向：计算、等待对方、传输。快节点并不会因此更快：慢节点需要多久，它就等多久。

# %%
bars = [(f"{arm}, {rank}", row) for arm in ARMS for rank, row in enumerate(run.trial(arm).ranks)]
figure, ax = plt.subplots(figsize=(8, 3.6))
left = [0.0] * len(bars)
for part in ("compute", "wait", "transfer"):
    widths = [1e3 * row[f"{part}_s"] for _, row in bars]
    ax.barh([name for name, _ in bars], widths, left=left, label=part)
    left = [a + b for a, b in zip(left, widths, strict=True)]
ax.invert_yaxis()
ax.set_xlabel("ms")
legend = ax.legend()

# %% [markdown] lang="en"
# The price, as a factor of the update's time. A ring of two nodes sends two messages one after the
# other, so each update waits for 100 ms if each is 50 ms late.

# %% [markdown] lang="zh"
# 代价，以更新时间的倍数表示。两个节点的环先后传两条消息，每条迟到 50 毫秒，一次更新就要等 100 毫秒。

# %%
for base, slow in (ARMS[:2], ARMS[2:]):
    long, short = (run.trial(arm).step_s[1] for arm in (slow, base))
    print(f"{slow:24} {1e3 * long:6.1f} ms   {base:16} {1e3 * short:6.1f} ms   ×{long / short:.1f}")

# %% [markdown] lang="en"
# Slow or not, two nodes must compute what one computes. Is that so?

# %% [markdown] lang="zh"
# 不论快慢，两个节点算出的必须与一个节点相同。是这样吗？

# %%
run.frame("verdicts")[["arm", "against", "verdict", "ratio"]].round(2)

# %% [markdown] lang="en"
# **Your turn.** With four nodes (`world_size=4`), what does a message that is 50 ms late cost a ring,
# what a tree? Count the messages on the way first (`dualml show lab2`, `dualml simulate`), then
# measure.

# %% [markdown] lang="zh"
# **轮到你了。** 四个节点时（`world_size=4`），每条消息迟到 50 毫秒，环要多花多少？树呢？先数一数路径上的消息
# （`dualml show lab2`、`dualml simulate`），再测量。
