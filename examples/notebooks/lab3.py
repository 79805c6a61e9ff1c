# %% [markdown] lang="en"
# # Lab 3: what does skewed data do to accuracy?
#
# Two nodes train on parts of their own and average their parameters every 64 updates. Once each part
# is a random half; once each node has only five of the digits.

# %% [markdown] lang="zh"
# # 实验三：数据倾斜对准确率有何影响？
#
# 两个节点各自在自己的那部分数据上训练，每 64 次更新对参数取平均。一种情形下每部分是随机的一半；另一种情形下每个节点只有
# 五个数字。

# %%
from pathlib import Path

import matplotlib.pyplot as plt

import dualml

LANG = "en"
ARMS = ["skew-none", "skew-shards", "random-partition", "random-partition-one"]
folder = Path("runs/lab3")
if not folder.exists():
    dualml.run(
        "lab3",
        backend="torch",
        arms=ARMS,
        settings={
            "arms.skew-none.aggregation.sync_period": 64,
            "arms.skew-shards.aggregation.sync_period": 64,
            "arms.skew-shards.partition.shards": 1,
            "evaluation.per_epoch": 1,
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
# Who has which digits? Every rank is a row, every digit a column.

# %% [markdown] lang="zh"
# 谁有哪些数字？每行一个节点，每列一个数字。

# %%
figure, axes = plt.subplots(1, 2, figsize=(8, 1.8))
for ax, arm in zip(axes, ARMS[:2], strict=True):
    counts = run.deals(arm, 0)[0]["histogram"]
    ax.imshow(counts, cmap="Blues", vmin=0, vmax=300)
    ax.set(title=arm, xticks=range(10), yticks=range(2))
    for rank, row in enumerate(counts):
        for digit, count in enumerate(row):
            ax.text(digit, rank, count, ha="center", va="center", size=7)

# %% [markdown] lang="en"
# The accuracy on the test set, which has all digits.

# %% [markdown] lang="zh"
# 测试集（含所有数字）上的准确率。

# %%
axes = run.plot.accuracy(arm=ARMS[:2], lang=LANG)

# %%
for trial in run.trials:
    by_digit = " ".join(f"{share:4.0%}" for share in trial.class_accuracy)
    print(f"{trial.arm:22} {trial.test_accuracy:6.1%}   by digit: {by_digit}")

# %% [markdown] lang="en"
# Between two averages a node forgets digits that it never sees; what is averaged lies between two
# networks that have gone different ways. Where gradients are averaged at every update the parts do
# not matter: two nodes compute what one computes on the same samples.

# %% [markdown] lang="zh"
# 两次平均之间，节点会忘掉它从未见过的数字；取平均得到的，介于两个走向不同的网络之间。若每次更新都对梯度取平均，怎样划分并不重要：两个节点
# 算出的与一个节点用同样样本算出的相同。

# %%
run.frame("verdicts")[["arm", "against", "verdict", "ratio"]].round(2)

# %% [markdown] lang="en"
# **Your turn.** How often must skewed nodes average to lose nothing? Try
# `"arms.skew-shards.aggregation.sync_period": 16`, then 4 and 1.

# %% [markdown] lang="zh"
# **轮到你了。** 数据倾斜的节点要多久平均一次才不会有损失？试试
# `"arms.skew-shards.aggregation.sync_period": 16`，再试 4 和 1。
