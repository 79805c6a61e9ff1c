"""The catalogue's own words in both languages, for the command and the pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dualml.diffs.compare import Found
from dualml.diffs.entry import Entry, Lang

TOPICS: dict[Lang, dict[str, str]] = {
    "en": {
        "data": "Data",
        "initialisers": "Initialisers",
        "layers": "Layers",
        "modes": "Modes",
        "losses": "Losses",
        "optimizers": "Optimizers",
        "schedules": "Learning-rate schedules",
        "collectives": "Collectives",
        "tensors": "Tensors and gradients",
    },
    "zh": {
        "data": "数据",
        "initialisers": "初始化",
        "layers": "层",
        "modes": "模式",
        "losses": "损失函数",
        "optimizers": "优化器",
        "schedules": "学习率调度",
        "collectives": "集合通信",
        "tensors": "张量与梯度",
    },
}
WORDS: dict[Lang, dict[str, str]] = {
    "en": {
        "torch": "PyTorch",
        "mindspore": "MindSpore",
        "entry": "entry",
        "what": "what",
        "silent": "silent",
        "told": "told",
        "silent.long": "silent: neither an error nor a warning",
        "told.long": "told: an error or a warning",
        "same.long": "no difference, but often asked for",
        "effect": "effect",
        "after": "made equal",
        "state": "state",
        "ok": "ok",
        "problem": "not as described",
        "changed.short": "changed",
        "remedy": "remedy",
        "measured": "measured",
        "seen": "seen for",
        "sources": "sources",
        "ranks": "needs {n} ranks; its code is given `rank` and `size`",
        "listing": "code",
        "listing.topic": "what the code of this topic uses",
        "code": "{side}, {variant}",
        "code.plain": "as it comes",
        "code.equal": "made equal",
        "code.helpers": "what it uses",
        "code.unchanged": "the same code",
        "differ.value": "differ by {effect} (relative)",
        "differ.other": "{effect}",
        "differ.same": "equal",
        "differ.near": "equal within {effect} (relative)",
        "equal.value": "made equal {effect}",
        "equal.none": "nothing makes them equal",
        "none": "–",
        "colon": ": ",
        "comma": ", ",
        "period": ".",
        "join": "; ",
        "running": "measuring",
        "hint": "{name} is not installed, so nothing is measured; install it with: {install}",
        "summary": "entries: {n}, silent: {silent}",
        "described": "as described: {n}",
        "changed": "not as described: {n} ({names})",
        "here": "measured with {versions} on {device}",
        "more": "dualml diffs NAME explains one of them",
    },
    "zh": {
        "torch": "PyTorch",
        "mindspore": "MindSpore",
        "entry": "条目",
        "what": "内容",
        "silent": "静默",
        "told": "有提示",
        "silent.long": "静默：既不报错也不警告",
        "told.long": "有提示：会报错或警告",
        "same.long": "并无差异，但常有人问起",
        "effect": "差异",
        "after": "统一之后",
        "state": "状态",
        "ok": "相符",
        "problem": "与描述不符",
        "changed.short": "不符",
        "remedy": "对策",
        "measured": "实测",
        "seen": "验证于",
        "sources": "依据",
        "ranks": "需要 {n} 个 rank；其代码的参数为 `rank` 与 `size`",
        "listing": "代码",
        "listing.topic": "本主题代码所用的辅助代码",
        "code": "{side}（{variant}）",
        "code.plain": "默认写法",
        "code.equal": "统一之后",
        "code.helpers": "所用的辅助代码",
        "code.unchanged": "代码不变",
        "differ.value": "相对差异为 {effect}",
        "differ.other": "{effect}",
        "differ.same": "相同",
        "differ.near": "在 {effect}（相对差异）之内相同",
        "equal.value": "统一之后为 {effect}",
        "equal.none": "没有办法使两者一致",
        "none": "–",
        "colon": "：",
        "comma": "、",
        "period": "。",
        "join": "；",
        "running": "正在测量",
        "hint": "未安装 {name}，因此不进行测量；安装命令：{install}",
        "summary": "共 {n} 个条目，其中静默的 {silent} 个",
        "described": "{n} 个与描述相符",
        "changed": "{n} 个与描述不符（{names}）",
        "here": "用 {versions} 在 {device} 上测量",
        "more": "用 dualml diffs NAME 查看其中某一条的详细说明",
    },
}


def mark(entry: Entry, words: Mapping[str, str], suffix: str = "") -> str:
    """Whether anything tells the user; nothing has to where there is no difference."""
    if entry.kind == "same":
        return words["same.long"] if suffix else words["none"]
    return words[("silent" if entry.silent else "told") + suffix]


def heading(side: str, variant: str, words: Mapping[str, str]) -> str:
    """What stands above a listing."""
    return words["code"].format(side=words[side], variant=words[f"code.{variant}"])


def is_silent(entry: Entry) -> bool:
    return entry.silent and entry.kind != "same"


def cells(found: Found, lang: Lang) -> tuple[str, str]:
    """Effect, and distance once both are made equal, as a table has them."""
    none = WORDS[lang]["none"]
    if found.plain is None or found.equal is None:
        return none, none
    after = none if found.entry.after is None else found.equal.short(lang)
    return found.plain.short(lang), after


def sentence(found: Found, lang: Lang, *, brief: bool = False) -> str:
    """What was measured of an entry, in one line; ``brief`` leaves out what an error said."""
    words, entry = WORDS[lang], found.entry
    assert found.plain is not None
    assert found.equal is not None
    plain, equal = ((one.short if brief else one.told)(lang) for one in (found.plain, found.equal))
    if entry.kind == "same" and found.plain.kind == "value":
        kind = "near"
    else:
        kind = found.plain.kind if found.plain.kind in ("value", "same") else "other"
    said = words[f"differ.{kind}"].format(effect=plain)
    if entry.after is not None:
        return said + words["join"] + words["equal.value"].format(effect=equal)
    return said if entry.kind == "same" else said + words["join"] + words["equal.none"]


def described(entry: Entry, found: Found | None, codes: Mapping[str, Any]) -> dict[str, Any]:
    """An entry for scripts: its data, its code, and what was measured."""
    measured = None
    if found is not None and found.plain is not None and found.equal is not None:
        measured = {
            name: {"kind": seen.kind, "distance": seen.distance, "text": seen.text}
            for name, seen in (("plain", found.plain), ("equal", found.equal))
        }
    return {
        **entry.model_dump(mode="json"),
        "code": codes,
        "measured": measured,
        "problem": None if found is None else found.problem,
    }
