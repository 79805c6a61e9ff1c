"""The sentences of a comparison in two languages."""

from __future__ import annotations

from typing import Any, Literal

Language = Literal["en", "zh"]

TEXT: dict[Language, dict[str, str]] = {
    "en": {
        "verdict.equal": "equal:",
        "verdict.different": "different:",
        "verdict.not_comparable": "not comparable:",
        "equal.evidence": "all {arrays} arrays of {steps} step(s) lie within {margin} times the "
        "measured rounding; the farthest at {worst} times.",
        "reason.random": "a model does not repeat itself.",
        "reason.both_raised": "both sides raised.",
        "reason.chaotic": "rounding alone changes the loss by more than 10 %.",
        "reason.no_steps": "no step was recorded.",
        "phase.parameters": "parameters",
        "phase.forward": "forward",
        "phase.loss": "loss",
        "phase.gradient": "gradient",
        "phase.update": "update",
        "phase.state": "state",
        "first.place": "first at step {step}, {phase}, layer {layer}, tensor {tensor}.",
        "first.value": "The two sides lie {distance} apart (relative), {ratio} times the {envelope}"
        " that rounding does there (margin {margin}); everything before is inside.",
        "first.outside": "It begins there and passes the margin at {phase}, {tensor}: {ratio:.3g} "
        "times.",
        "first.shape": "Shapes: {a} {left}, {b} {right}.",
        "first.nan": "Only {side} has NaN there.",
        "first.both_nan": "Both sides have NaN there: nothing after it can be compared.",
        "first.trained": "{side} does not train it, the other side does.",
        "first.raised": "{side} raised there or after it.",
        "first.outputs": "The models give another number of outputs.",
        "first.elements": "The elements that differ most: {elements}.",
        "first.element": "{index} {a} {left}, {b} {right}",
        "first.hint": "A usual reason: {hint}.",
        "first.entry": "More: `dualml diffs {entry}`.",
        "semicolon": "; ",
        "column.phase": "phase",
        "column.arrays": "arrays",
        "column.step": "step",
        "column.tensor": "farthest tensor",
        "column.distance": "distance",
        "column.envelope": "rounding",
        "column.ratio": "ratio",
        "note.by_order": "{n} of {all} parameters were paired by their order among equal shapes "
        "only: if that is wrong, say it with map.",
        "note.left": "Buffers that only {side} has were not compared: {names}.",
        "note.outputs": "The models return other structures: {a} and {b}.",
        "note.layout": "{name} has shape {a} on one side and {b} on the other; what follows is "
        "equal, so only the layout differs.",
        "note.random": "On the side of {side}, two runs of the same step differ, first in {name} "
        "({phase}, {type}): set its p to 0, compare in evaluation mode (train=False), or draw its "
        "numbers from a fixed seed inside the model.",
        "note.raised": "{side} raised {text}.",
        "note.chaotic": "From step {step} on.",
        "note.kink": "A lone gradient at step {step} is outside as one kink (ReLU, pooling) "
        "explains; weights and losses are inside.",
        "tolerance.bound": "No draws were recorded: the tolerance is {margin} × √fan-in × 2⁻²³, a "
        "rule of thumb, not a measurement; Recorder.run measures it.",
    },
    "zh": {
        "verdict.equal": "相等：",
        "verdict.different": "不同：",
        "verdict.not_comparable": "不可比较：",
        "equal.evidence": "{steps} 步的全部 {arrays} 个数组都在实测舍入的 {margin} 倍以内，"
        "最远的为 {worst} 倍。",
        "reason.random": "模型不能重复自己的结果。",
        "reason.both_raised": "两侧都报错。",
        "reason.chaotic": "仅舍入就使损失改变超过 10 %。",
        "reason.no_steps": "没有记录任何一步。",
        "phase.parameters": "参数",
        "phase.forward": "前向",
        "phase.loss": "损失",
        "phase.gradient": "梯度",
        "phase.update": "更新",
        "phase.state": "状态",
        "first.place": "最先出现在第 {step} 步，{phase}，层 {layer}，张量 {tensor}。",
        "first.value": "两侧相对距离 {distance}，是该处舍入 {envelope} 的 {ratio} 倍"
        "（容限 {margin} 倍）；此前的一切都在容限之内。",
        "first.outside": "差异从此处开始，在{phase}，{tensor} 处超出容限：{ratio:.3g} 倍。",
        "first.shape": "形状：{a} {left}，{b} {right}。",
        "first.nan": "只有 {side} 在此处出现 NaN。",
        "first.both_nan": "两侧在此处都出现 NaN：其后无法比较。",
        "first.trained": "{side} 不训练它，另一侧训练它。",
        "first.raised": "{side} 在此处或其后报错。",
        "first.outputs": "两个模型的输出个数不同。",
        "first.elements": "相差最大的元素：{elements}。",
        "first.element": "{index} {a} {left}，{b} {right}",
        "first.hint": "常见原因：{hint}。",
        "first.entry": "详见 `dualml diffs {entry}`。",
        "semicolon": "；",
        "column.phase": "阶段",
        "column.arrays": "数组",
        "column.step": "步",
        "column.tensor": "最远的张量",
        "column.distance": "距离",
        "column.envelope": "舍入",
        "column.ratio": "倍数",
        "note.by_order": "{all} 个参数中有 {n} 个仅按同形状的先后顺序配对：若不对，请用 map 说明。",
        "note.left": "仅 {side} 有的缓冲区未比较：{names}。",
        "note.outputs": "两个模型返回的结构不同：{a} 与 {b}。",
        "note.layout": "{name} 一侧形状为 {a}，另一侧为 {b}；其后相等，因此只是排布不同。",
        "note.random": "{side} 一侧，同一步运行两次结果不同，最先在 {name}（{phase}，{type}）："
        "把它的 p 设为 0，或在评估模式下比较（train=False），或在模型内用固定种子抽取。",
        "note.raised": "{side} 报错：{text}。",
        "note.chaotic": "从第 {step} 步起。",
        "note.kink": "第 {step} 步只有一处梯度超出，一个折点（ReLU、池化）即可解释；"
        "权重与损失都在容限内。",
        "tolerance.bound": "没有记录扰动重复：容限取 {margin} × √扇入 × 2⁻²³，是经验值而非测量；"
        "Recorder.run 会测量它。",
    },
}

#: What usually differs, by the type of a layer in small letters, by phase, by slot of the state.
#: Key of `HINTS` → the catalogue's entry about it.
ENTRIES = {
    "layernorm": "layernorm-eps",
    "batchnorm": "train-mode-default",
    "gelu": "gelu",
    "leakyrelu": "leaky-relu-slope",
    "conv": "conv-padding",
    "maxpool": "maxpool-stride",
    "avgpool": "avgpool-same",
    "loss": "softmax-cross-entropy-reduction",
    "update": "adam-epsilon",
    "state:buffer": "batchnorm-momentum",
}
HINTS: dict[str, dict[Language, str]] = {
    "layernorm": {
        "en": "eps is 1e-5 in PyTorch and 1e-7 in MindSpore unless it is given",
        "zh": "eps 的默认值在 PyTorch 为 1e-5，在 MindSpore 为 1e-7",
    },
    "batchnorm": {
        "en": "eps, or a cell that was not set to training",
        "zh": "eps 不同，或未切换到训练模式",
    },
    "gelu": {
        "en": "MindSpore's nn.GELU() is the tanh approximation, PyTorch's the error function; "
        "nn.GELU(approximate=False) is the same",
        "zh": "MindSpore 的 nn.GELU() 默认用 tanh 近似，PyTorch 用误差函数；"
        "用 nn.GELU(approximate=False)",
    },
    "leakyrelu": {
        "en": "the slope is 0.01 in PyTorch and 0.2 in MindSpore unless it is given",
        "zh": "斜率默认值在 PyTorch 为 0.01，在 MindSpore 为 0.2",
    },
    "conv": {
        "en": "MindSpore pads (pad_mode='same') and has no bias unless told otherwise; use "
        "pad_mode='pad', padding=…, has_bias=True",
        "zh": "MindSpore 默认补边（pad_mode='same'）且无偏置；"
        "用 pad_mode='pad', padding=…, has_bias=True",
    },
    "maxpool": {
        "en": "the stride is the kernel in PyTorch and 1 in MindSpore unless it is given",
        "zh": "步长默认值在 PyTorch 等于核大小，在 MindSpore 为 1",
    },
    "avgpool": {
        "en": "stride (kernel or 1) and whether padded zeros count in the mean",
        "zh": "步长（核大小或 1）以及补零是否计入平均",
    },
    "linear": {
        "en": "a square weight that is stored transposed, or an activation inside the Dense",
        "zh": "方阵权重按转置存放，或 Dense 内含激活函数",
    },
    "loss": {
        "en": "mean or sum, label smoothing, weights of classes",
        "zh": "取平均还是求和、标签平滑、类别权重",
    },
    "update": {
        "en": "the optimizer: epsilon inside or outside the bias correction, decay that skips "
        "some parameters, momentum conventions",
        "zh": "优化器：epsilon 在偏差校正之内或之外、权重衰减跳过某些参数、动量约定",
    },
    "state:buffer": {
        "en": "BatchNorm's momentum weighs the new in PyTorch (0.1) and the old in MindSpore (0.9)",
        "zh": "BatchNorm 的 momentum 在 PyTorch 是新值的权重（0.1），在 MindSpore 是旧值的（0.9）",
    },
}  # fmt: skip


def text(lang: Language, key: str, **values: Any) -> str:
    """A sentence with its values; an unknown key is an error of ours and raises `KeyError`."""
    return TEXT[lang][key].format(**values)
