# %% [markdown] lang="en"
# # RNN with a parameter server: what does the server cost?
#
# A language model has large tables of words, at its entrance and at its exit. They live on a server;
# the LSTM between them is on a trainer, or on two.

# %% [markdown] lang="zh"
# # 带参数服务器的 RNN：服务器的代价多大？
#
# 语言模型的入口与出口各有一张很大的表（词嵌入与解码层），放在服务器上；中间的 LSTM 在一个或两个训练节点上。

# %%
from pathlib import Path

import dualml

LANG = "en"
ARMS = ["whole", "server", "two-trainers", "two-trainers-asynchronous"]
folder = Path("runs/rnn_ps")
if not folder.exists():
    dualml.run(
        "rnn_ps",
        backend="torch",
        arms=ARMS,
        quick=True,
        out=folder,
        report=False,
        progress=False,
    )
run = dualml.load(folder)
columns = ["arm", "backend", "final_loss", "test_accuracy", "train_s", "verdict"]
run.frame("trials")[columns].round(3)

# %% [markdown] lang="en"
# The loss falls alike, but for the server that does not wait for both trainers: it updates twice as
# often, each time with the gradient of half of a batch.

# %% [markdown] lang="zh"
# 损失下降的情形相同，只有不等齐两个训练节点的服务器例外：它的更新次数加倍，每次只用半个批次的梯度。

# %%
axes = run.plot.loss(arm=ARMS, lang=LANG)

# %% [markdown] lang="en"
# What travels, and what that takes:

# %% [markdown] lang="zh"
# 传了多少，用了多久：

# %%
for trial in run.trials:
    megabytes = (trial.sent_bytes or 0) / 1e6
    print(f"{trial.arm:26} {1e3 * trial.step_s[1]:6.1f} ms an update, {megabytes:5.2f} MB sent")

# %%
run.frame("verdicts")[["arm", "against", "verdict", "ratio"]].round(2)

# %% [markdown] lang="en"
# **Your turn.** What grows with the number of words, the messages or only the tables? Look at what
# crosses the links with `dualml split rnn_ps --arm server`, then try `settings={"data.words": 500}`.

# %% [markdown] lang="zh"
# **轮到你了。** 词数增加时，增大的是消息，还是只有那两张表？先用 `dualml split rnn_ps --arm server` 看链路上传什么，再试
# `settings={"data.words": 500}`。
