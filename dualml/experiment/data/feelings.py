"""The labelled text that dualml generates: Chinese sentences that show one of six feelings.

A classifier has to learn which words go with which feeling, and that some words carry none. Some
sentences also name the feeling of somebody else, so that not every sentence can be classified.
Every choice comes from the SHA-256 of a counter, as in `data.sentences`.
"""

from __future__ import annotations

from dualml.experiment.data.sentences import HashRandom, Words

SENTENCES = 3_000
#: Percentage of sentences that also name somebody else's feeling.
OTHER_FEELING_PERCENT = 20
#: Parts of a sentence: person, time, activity, place; spaces separate words.
PERSONS = ("我", "他", "妹妹", "老师", "同学", "爸爸", "邻居", "医生")
TIMES = ("今天", "昨天", "早上", "周末", "晚上", "刚才", "下课 后")
ACTIVITIES = (
    "看 电影",
    "写 作业",
    "坐 地铁",
    "吃 午饭",
    "等 快递",
    "考试",
    "跑步",
    "开会",
    "整理 房间",
)
PLACES = ("在 学校", "在 家", "在 公司", "在 路上", "在 医院")
#: Words of each feeling in the order of its classes in ``datasets.toml``; the first class is no
#: feeling.
WORDS = (
    ("和 平时 一样", "没有 什么 特别", "准时 到 了", "带 了 一 把 伞", "换 了 座位"),
    ("很 喜欢 这里", "觉得 很 好看", "想 再 来 一 次", "舍不得 走", "推荐 给 大家"),
    ("心里 难过", "忍不住 哭 了", "很 想念 朋友", "没有 力气 说话", "一个人 发呆"),
    ("觉得 恶心", "受不了 这 味道", "一点 也 不 喜欢", "看 都 不 想 看", "真 没意思"),
    ("气 得 发抖", "大声 吵架", "太 过分 了", "摔 了 门", "忍无可忍"),
    ("笑 个 不停", "开心 极 了", "高兴 得 跳 起来", "终于 成功 了", "一点 也 不 难过"),
)


def make_labelled_sentences() -> list[tuple[Words, int]]:
    """Return the `SENTENCES` sentences as lists of words, each with its class, an index into
    `WORDS`; they are the same at every call."""
    draw = HashRandom("feelings")
    return [make_labelled_sentence(draw) for _ in range(SENTENCES)]


def make_labelled_sentence(draw: HashRandom) -> tuple[Words, int]:
    """Draw one sentence as a list of words, and its class, an index into `WORDS`."""
    label = draw.randbelow(len(WORDS))
    parts = [draw.weighted_choice(TIMES)] if draw.chance(60) else []
    parts += [draw.weighted_choice(PERSONS)]
    parts += [draw.weighted_choice(PLACES)] if draw.chance(40) else []
    parts += [draw.weighted_choice(ACTIVITIES)] if draw.chance(70) else []
    parts += ["，", draw.weighted_choice(WORDS[label])]
    if draw.chance(OTHER_FEELING_PERCENT):
        parts += [
            "，",
            draw.weighted_choice(PERSONS),
            draw.weighted_choice(WORDS[draw.randbelow(len(WORDS))]),
        ]
    return [*" ".join(parts).split(), "。"], label
