"""A finding in one paragraph that a person can act on, in either language."""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dualml.parity.pairs import FLOOR

PHASES = {
    "en": {
        "data": "in the data it was given ({tensor})",
        "forward": "in the forward pass, at the output of {tensor}",
        "loss": "in the loss",
        "gradient": "in the gradient of {tensor}",
        "aggregation": "in what the ranks made of the gradient of {tensor} ({collective})",
        "update": "in the update of {tensor}",
        "state": "in the optimizer's state {tensor}",
    },
    "zh": {
        "data": "模型得到的数据（{tensor}）",
        "forward": "前向传播中 {tensor} 的输出",
        "loss": "损失",
        "gradient": " {tensor} 的梯度",
        "aggregation": "各 rank 聚合后的 {tensor} 梯度（{collective}）",
        "update": " {tensor} 的参数更新",
        "state": "优化器状态 {tensor}",
    },
}
WORDS = {
    "en": {
        "where": "{arm}, seed {seed}: {backend} leaves the rule at update {step}, {phase}{ranks}.",
        "far": " It is off by {distance} ({ratio} times what rounding does there){others}.",
        "shape": " It has shape {found}; the rule gives {expected}.",
        "others": "; {names} agrees with the referee",
        "both": "; so is {names}",
        "rank": " on rank {ranks} of {size}",
        "ranks": " on ranks {ranks} of {size}",
        "all ranks": " on all {size} ranks",
        "owners": " (the layer is on rank {ranks})",
        "element": " {tensor}{index} is {found}, the rule gives {expected}; {share} of its "
        "elements and {count} of {all} tensors are off.",
        "cause": " What explains it ({score} of the difference): {says}. Do: {remedy}.",
        "diffs": " More: `dualml diffs {entry}`.",
        "unknown": " Nothing in the catalogue explains it; nearest ({score}): {says}.",
        "nothing": " Nothing in the catalogue resembles it.",
        "rounding": "{arm}, seed {seed}: single updates of {a} and {b} from a common state differ "
        "by no more than rounding (at most {ratio} of the {margin} envelopes allowed, {where}); "
        "what drives the trajectories apart adds up over updates, or did not happen again.",
        "failed": "{arm}, seed {seed}: the update could not be made again: {reason}.",
        "at": "{phase}/{tensor} of {backend} at update {step}",
    },
    "zh": {
        "where": "{arm}，种子 {seed}：{backend} 在第 {step} 次更新时偏离规则，"
        "位置是{phase}{ranks}。",
        "far": "偏差为 {distance}（是该处舍入影响的 {ratio} 倍）{others}。",
        "shape": "其形状为 {found}，按规则应为 {expected}。",
        "others": "；{names} 与裁判一致",
        "both": "；{names} 也偏离",
        "rank": "（共 {size} 个 rank，出现在 rank {ranks}）",
        "ranks": "（共 {size} 个 rank，出现在 rank {ranks}）",
        "all ranks": "（{size} 个 rank 全部如此）",
        "owners": "（该层位于 rank {ranks}）",
        "element": "{tensor}{index} 的值为 {found}，按规则应为 {expected}；该张量 {share} 的元素、"
        "{all} 个张量中的 {count} 个受影响。",
        "cause": "最能解释它的原因（解释了差异的 {score}）：{says}。处理方法：{remedy}。",
        "diffs": "详见 `dualml diffs {entry}`。",
        "unknown": "目录中没有条目能解释它；最接近的（{score}）：{says}。",
        "nothing": "目录中没有与之相似的条目。",
        "rounding": "{arm}，种子 {seed}：从同一状态出发，{a} 与 {b} 的单次更新之差不超过舍入"
        "（最大为包络的 {ratio} 倍，允许 {margin} 倍，{where}）；轨迹的分离"
        "是多次更新累积而成，或未能重现。",
        "failed": "{arm}，种子 {seed}：无法重做该次更新：{reason}。",
        "at": "{backend} 第 {step} 次更新的 {phase}/{tensor}",
    },
}


@functools.cache
def causes() -> dict[str, Any]:
    """Cause → its texts and the catalogue's entries about it."""
    return tomllib.loads(Path(__file__).with_name("causes.toml").read_text("utf-8"))


def paragraph(finding: Mapping[str, Any], lang: str = "en") -> str:
    """What was found, where, and what to do about it."""
    words, base = WORDS[lang], {k: finding[k] for k in ("arm", "seed", "a", "b")}
    if finding["status"] == "not replayed":
        return words["failed"].format(**base, reason=finding["reason"].rstrip("."))
    if finding["status"] == "rounding only":
        worst = finding.get("worst") or {}
        where = words["at"].format(**worst) if worst else ""
        margin = finding.get("margin", 10)
        return words["rounding"].format(
            **base, ratio=f"{worst.get('ratio', 0):.1f}", margin=f"{margin:g}", where=where
        )
    return place(finding, lang) + why(finding, lang)


def place(finding: Mapping[str, Any], lang: str) -> str:
    """Update, phase, tensor, ranks, elements, and who agrees."""
    words = WORDS[lang]
    comma = "、" if lang == "zh" else ", "
    told = {"tensor": finding["tensor"], "collective": finding["collective"] or ""}
    ranks = ""
    if finding["owners"]:
        ranks = words["owners"].format(ranks=comma.join(map(str, finding["owners"])))
    elif finding["world_size"] > 1:
        on, size = finding["ranks"], finding["world_size"]
        key = "rank" if len(on) == 1 else "all ranks" if len(on) == size else "ranks"
        ranks = words[key].format(ranks=comma.join(map(str, on)), size=size)
    text = words["where"].format(
        arm=finding["arm"], seed=finding["seed"], backend=finding["backend"], step=finding["step"],
        phase=PHASES[lang][finding["phase"]].format(**told), ranks=ranks,
    )  # fmt: skip
    shapes = finding["elements"]["shape"]
    if len(shapes) == 2:
        return text + words["shape"].format(found=tuple(shapes[0]), expected=tuple(shapes[1]))
    if finding["phase"] != "data":
        far = finding["distance"]
        ratio = far if math.isinf(far) else far / max(finding["envelope"] or 0.0, FLOOR)
        text += words["far"].format(
            distance=f"{far:.1e}",
            ratio=f"{ratio:.2g}",
            others=others(finding, lang),
        )
    if finding["elements"]["largest"]:
        first = finding["elements"]["largest"][0]
        index = f"[{', '.join(map(str, first['index']))}]" if first["index"] else ""
        text += words["element"].format(
            tensor=finding["tensor"], index=index, found=f"{first['found']:.6g}",
            expected=f"{first['expected']:.6g}", share=f"{finding['elements']['share']:.0%}",
            count=len(finding["tensors"]), all=finding["of_tensors"],
        )  # fmt: skip
    return text


def others(finding: Mapping[str, Any], lang: str) -> str:
    """What the other backend does there."""
    both = [name for name in finding["guilty"] if name != finding["backend"]]
    fine = [name for name in finding["others"] if name not in both]
    words, comma = WORDS[lang], "、" if lang == "zh" else ", "
    return (words["both"].format(names=comma.join(both)) if both else "") + (
        words["others"].format(names=comma.join(fine)) if fine else ""
    )


def why(finding: Mapping[str, Any], lang: str) -> str:
    """The best cause and its remedy, or that none is known."""
    words = WORDS[lang]
    if not finding["causes"]:
        return words["nothing"]
    best = finding["causes"][0]
    told = causes().get(best["cause"], {})
    says = says_of(best, lang)
    score = f"{best['score']:.1%}"
    if finding["status"] != "found":
        return words["unknown"].format(score=score, says=says)
    text = words["cause"].format(score=score, says=says, remedy=told["remedy"][lang])
    entries = told.get("entries", [])
    return text + (words["diffs"].format(entry=entries[0]) if entries else "")


def says_of(cause: Mapping[str, Any], lang: str) -> str:
    """The clause about one cause, with its numbers."""
    template = causes().get(cause["cause"], {}).get("says", {}).get(lang, cause["cause"])
    shown = {name: short(value) for name, value in cause["detail"].items()}
    return str(template.format_map(shown))


def short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(short(one) for one in value)
    return str(value)
