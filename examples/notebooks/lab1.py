# %% [markdown] lang="en"
# # Lab 1: what does momentum do?
#
# The same network learns the same digits in the same order, on PyTorch and on MindSpore: by plain
# stochastic gradient descent, and with heavy-ball momentum.

# %% [markdown] lang="zh"
# # 实验一：动量起什么作用？
#
# 同一个网络以同样的顺序学习同样的数字，分别在 PyTorch 与 MindSpore 上：一种用普通随机梯度下降，另一种加上重球动量。

# %%
from pathlib import Path

import dualml

LANG = "en"
ARMS = ["sgd", "heavy-ball"]
folder = Path("runs/lab1")
if not folder.exists():
    dualml.run(
        "lab1",
        backend="both",
        arms=ARMS,
        settings={"arms.sgd.epochs": 8, "arms.heavy-ball.epochs": 8},
        quick=True,
        out=folder,
        report=False,
        progress=False,
    )
run = dualml.load(folder)
columns = ["arm", "backend", "final_loss", "test_accuracy", "train_s", "verdict"]
run.frame("trials")[columns].round(3)

# %% [markdown] lang="en"
# The loss of each arm; the curves of the two frameworks lie on one another. Without momentum the
# rate is 0.05, with it 0.005.

# %% [markdown] lang="zh"
# 各方案的损失；两个框架的曲线重合。无动量时学习率为 0.05，有动量时为 0.005。

# %%
axes = run.plot.loss(arm=ARMS, lang=LANG)

# %% [markdown] lang="en"
# Momentum $\mu = 0.9$ adds up gradients that agree: $1 + \mu + \mu^2 + \dots = 1/(1-\mu) = 10$ of them.
# That is why a tenth of the rate takes as long steps in the end. Not in the beginning: the sum has
# to grow first. What is the loss after the first updates, and at the end?

# %% [markdown] lang="zh"
# 动量 $\mu = 0.9$ 把方向一致的梯度累加起来：$1 + \mu + \mu^2 + \dots = 1/(1-\mu) = 10$ 倍。
# 因此学习率只有十分之一，最终每步也一样长；但起初不是，累加需要时间。开头几次更新之后与结束时的损失各是多少？

# %%
frame = run.frame()
losses = frame[(frame.metric == "loss") & (frame.backend == "torch")]
losses.pivot(index="step", columns="arm", values="value").iloc[[0, 4, 9, 19, -1]].round(3)

# %% [markdown] lang="en"
# Did both frameworks compute the same? Not to the last bit: the tolerance is what rounding does to
# this very training, measured.

# %% [markdown] lang="zh"
# 两个框架算出的相同吗？并非逐位相同：容差就是舍入对这次训练的影响，由实测得出。

# %%
run.frame("verdicts")[["arm", "a", "b", "verdict", "ratio"]].round(2)

# %% [markdown] lang="en"
# **Your turn.** Is it the momentum or only the length of the step? Give plain SGD the rate 0.005, and
# heavy-ball the rate 0.05, with `settings={"arms.sgd.optimizer.lr": 0.005}`. Which of the four curves
# are close to one another?

# %% [markdown] lang="zh"
# **轮到你了。** 起作用的是动量，还是只是步长？用 `settings={"arms.sgd.optimizer.lr": 0.005}` 把普通 SGD 的学习率改为
# 0.005，再把重球动量的改为 0.05。四条曲线中哪些彼此接近？
