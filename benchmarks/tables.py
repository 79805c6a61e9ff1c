"""The measured rows in words, English or Chinese, and as tables on a terminal."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rich.console import Console
from rich.table import Table

Record = dict[str, Any]

HEAD = {
    "en": ["what", "against", "ours", "other", "ours / other (quartiles)", "target", "", "note"],
    "zh": ["项目", "对照", "本项目", "对照值", "比值（四分位数）", "目标", "", "备注"],
}
WORDS = {
    "en": {True: "met", False: "missed", "faster": "× as fast", "machine": "Machine"},
    "zh": {True: "达到", False: "未达到", "faster": " 倍速度", "machine": "机器"},
}
#: Phrases of the rows in Chinese; what is not listed stays as it is.
CHINESE = {
    "training loop, torch": "训练循环，torch",
    "training loop, mindspore": "训练循环，mindspore",
    "peak memory": "峰值内存",
    "start-up": "启动时间",
    "MindSpore's convolutions": "MindSpore 的卷积",
    "optimizer step, torch": "优化器单步，torch",
    "optimizer step, mindspore": "优化器单步，mindspore",
    "hand-written, fused": "手写循环（fused）",
    "hand-written, foreach": "手写循环（foreach）",
    "hand-written, one compiled cell": "手写循环（整步编译）",
    "hand-written, PyNative": "手写循环（PyNative）",
    "hand-written script": "手写脚本",
    "course script (DataLoader, loss.item())": "课程脚本（DataLoader、loss.item()）",
    "without the choice": "不作选择",
    "one update, sgd": "一次更新，sgd",
    "compiled code is called through the framework's runtime wrapper, some 10 µs more than the one "
    "C++ call of a fused kernel; the update itself is shorter than that": "编译后的代码要经过框架的"
    "运行时包装来调用，比融合内核的一次 C++ 调用多约 10 µs；更新本身比这还短",
    "both wait for the memory: a tie, which moves by some hundredths from run to run": "两者都在"
    "等待内存：平局，比值每次运行变动百分之几",
    "collectives, torch": "集合通信，torch",
    "collectives, mindspore": "集合通信，mindspore",
    "data-parallel training on two ranks, torch": "两个进程的数据并行训练，torch",
    "data-parallel training on two ranks, mindspore": "两个进程的数据并行训练，mindspore",
    "split models, torch": "划分的模型，torch",
    "split models, mindspore": "划分的模型，mindspore",
    "bubble, torch": "气泡，torch",
    "bubble, mindspore": "气泡，mindspore",
    "1F1B, two stages, 4 micro-batches (deep_mlp)": "1F1B，两个阶段，4 个微批次（deep_mlp）",
    "column and row split (mlp)": "列切分与行切分（mlp）",
    "column and row split (wide_mlp)": "列切分与行切分（wide_mlp）",
    "the whole model on one rank": "一个进程上的完整模型",
    "the same and the split's transfers alone": "同上，再加上这种划分单独的通信时间",
    "by remote procedure calls (lenet, two stages)": "远程过程调用（lenet，两个阶段）",
    "by remote procedure calls (deep_mlp, two stages)": "远程过程调用（deep_mlp，两个阶段）",
    "by messages": "消息",
    "the same passes, did messages take no time": "各次计算保持实测长度，消息不花时间",
    "passes of the two cores differ in length from one to the next, and who is early "
    "waits": "两个核上每次前向与反向的用时各不相同，先到者要等",
    "two ranks against one, torch": "两个进程与一个进程，torch",
    "two ranks against one, mindspore": "两个进程与一个进程，mindspore",
    "an update of two ranks, LeNet, 256 samples each, a core each": "两个进程的一次更新，"
    "LeNet，各 256 个样本，各占一个核",
    "one rank alone, 256 samples": "一个进程单独运行，256 个样本",
    "MindSpore's DATA_PARALLEL mode, one compiled cell": "MindSpore 的 DATA_PARALLEL 模式，"
    "整步编译",
    "start-up of two ranks, torch": "两个进程的启动，torch",
    "start-up of two ranks, mindspore": "两个进程的启动，mindspore",
    "copy in memory": "内存复制",
    "tensor by tensor": "逐个张量",
    "ops.AllReduce per parameter": "每个参数一次 ops.AllReduce",
    "ops.AllReduce, flat": "ops.AllReduce，合并为一个张量",
    "one compiled cell, ops.AllReduce per parameter": "整步编译，每个参数一次 ops.AllReduce",
    "one compiled cell, ops.AllReduce, flat": "整步编译，ops.AllReduce 合并为一个张量",
    "DistributedDataParallel, fused SGD": "DistributedDataParallel，SGD（fused）",
    "DistributedDataParallel, foreach SGD": "DistributedDataParallel，SGD（foreach）",
    "LeNet, sgd, all_reduce": "LeNet，sgd，all_reduce",
    "a tie: the communicator adds 6 µs to a call, rounds differ by a fifth and more": "平局：通信器"
    "使每次调用多 6 µs，而各轮之间相差五分之一以上",
    "LeNet, sgd, all_reduce, overlap = true": "LeNet，sgd，all_reduce，overlap = true",
    "the same with gloo's threads as dualml leaves them": "同上，但保留 dualml 对 gloo 线程的设置",
    "gloo's receiving thread as it is": "gloo 接收线程的默认设置",
    "until the first sum is there": "到得出第一个和为止",
    "until all has ended": "到全部结束为止",
    "torch: worker of a trial": "torch：一次试验的工作进程",
    "mindspore: worker of a trial": "mindspore：一次试验的工作进程",
    "partitions of a million labelled samples to 100 ranks": "把一百万个带标签的样本分给 100 个 "
    "rank",
    "reading batches, torch": "读取批次，torch",
    "reading batches, mindspore": "读取批次，mindspore",
    "DataLoader, 0 workers": "DataLoader，无工作进程",
    "DataLoader, 2 workers": "DataLoader，2 个工作进程",
    "GeneratorDataset, 1 worker": "GeneratorDataset，1 个工作线程",
    "GeneratorDataset, 2 workers": "GeneratorDataset，2 个工作进程",
    "batches of 64 by index": "按下标取批次，每批 64 个",
    "batches of 256 by index": "按下标取批次，每批 256 个",
}
#: The same inside a text with figures or names around them.
PHRASES = {
    "test accuracies": "测试准确率",
    "processor time": "处理器时间",
    "efficiency ": "效率 ",
    ", at least ": "，不低于 ",
    " is good": " 为好",
    "dealing ": "分配 ",
    " s, the rest is proving": " s，其余为核对",
    ", momentum ": "，动量 ",
    ", LeNet, 52 thousand": "，LeNet，5.2 万参数",
    ", MLP, 10 million": "，MLP，1000 万参数",
    ", MLP, 235 thousand": "，MLP，23.5 万参数",
    ", 100 tensors, 4 MB": "，100 个张量，4 MB",
    "one bucket, ": "合并为一个桶，",
    "ring, ": "环形，",
    "all_reduce, ": "all_reduce，",
    " ranks, ": " 个进程，",
    " ranks": " 个进程",
    ", eager": "，即时执行",
    ", compiled": "，编译",
    "mnist, ": "mnist，",
    " and ": " 与 ",
    " micro-batches of ": " 个微批次，每个样本数 ",
    ", equal halves": "，两半计算量相等",
    "gpipe, ": "gpipe，",
    "eager-1f1b, ": "eager-1f1b，",
    "1f1b, ": "1f1b，",
}


def machine(threads: int) -> list[str]:
    """What the figures depend on: processor, cores, load, versions."""
    from dualml.machine import environment

    told = environment()
    lines = [f"{key}: {told[key]}" for key in ("cpu", "cores", "memory", "platform") if key in told]
    versions = [f"python {platform.python_version()}"]
    for name in ("dualml", "numpy", "torch", "mindspore"):
        with contextlib.suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    lines += [
        f"versions: {', '.join(versions)}",
        f"threads and cores used: {threads} a process",
    ]
    if hasattr(os, "getloadavg"):
        lines.append(f"load average over the last 15 minutes: {os.getloadavg()[2]:.1f}")
    return lines


def cells(record: Record, lang: str = "en") -> list[str]:
    """One line of the table."""
    words, ratio = WORDS[lang], record["ratio"]
    unit, other = record["unit"], record["other"]
    outcome = words[record["met"]] if record["met"] is not None else ""
    if ratio and record["met"] is None and unit != "%":  # a share is not faster than another
        times = 1 / ratio["median"]
        outcome = (f"{times:.2f}" if times >= 0.1 else f"{times:.1g}") + words["faster"]
    limit = record["target"]
    return [
        say(record["what"], lang),
        say(record["against"], lang),
        f"{figure(record['ours'])} {unit}",
        "" if other is None else f"{figure(other)} {unit}",
        shares(ratio) if ratio else "",
        "" if limit is None else f"≤ {limit:g}" + ("" if ratio else f" {unit}"),
        outcome,
        say(record["note"], lang),
    ]


def shares(ratio: Record) -> str:
    """Median and quartiles; the quartiles of a single measurement are left out."""
    less = 0 if ratio["low"] >= 0.1 else 2  # a gain of a hundred times needs more digits
    middle, *ends = (
        f"{ratio[k]:.{n + less}f}" for k, n in (("median", 3), ("low", 2), ("high", 2))
    )
    return f"{middle} ({ends[0]} – {ends[1]})" if ratio["low"] < ratio["high"] else middle


def figure(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def say(text: str, lang: str) -> str:
    if lang != "zh":
        return text
    if text in CHINESE:
        return CHINESE[text]
    for phrase, chinese in PHRASES.items():
        text = text.replace(phrase, chinese)
    return text


def by_section(records: Sequence[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record["section"], []).append(record)
    return found


def show(records: Sequence[Record], facts: Sequence[str], console: Console) -> None:
    """On a terminal."""
    for section, found in by_section(records).items():
        table = Table(title=section, title_justify="left", title_style="bold")
        for number, name in enumerate(HEAD["en"]):
            table.add_column(name, justify="right" if 2 <= number <= 5 else "left")
        for record in found:
            line = cells(record)
            style = "red" if record["met"] is False else "green" if record["met"] else ""
            table.add_row(*line[:6], f"[{style}]{line[6]}[/]" if style else line[6], line[7])
        console.print(table)
    for fact in facts:
        console.print(fact, style="dim", highlight=False)
