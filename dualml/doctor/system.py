"""What `dualml doctor` says about the machine: no framework needed."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator

import dualml
from dualml.doctor.finding import Finding
from dualml.machine import cache_dir, default_threads, machine

OLDEST_PYTHON = (3, 11)
#: MindSpore 2.10 has no wheels for anything newer.
NEWEST_PYTHON = (3, 12)
LITTLE_MEMORY_MB = 2048


def examine_system() -> Iterator[Finding]:
    yield from _python()
    yield from _hardware()
    yield from _data()
    yield _cache()


def _python() -> Iterator[Finding]:
    m = machine()
    told = f"{m.python}, {sys.executable}"
    if OLDEST_PYTHON <= sys.version_info[:2] <= NEWEST_PYTHON:
        yield Finding("python", "ok", told, told)
    else:
        yield Finding(
            "python",
            "warn",
            f"{told}; dualml needs 3.11 or newer, MindSpore 3.12 or older",
            f"{told}；dualml 需要 3.11 或更新版本，MindSpore 需要 3.12 或更旧版本",
            "make a virtual environment with python3.11 or python3.12",
            "用 python3.11 或 python3.12 创建虚拟环境",
        )
    told = f"{dualml.__version__}{f', {m.git}' if m.git else ''}"
    yield Finding("dualml", "ok", told, told)
    yield Finding("numpy", "ok", m.numpy, m.numpy)


def _hardware() -> Iterator[Finding]:
    m = machine()
    yield Finding(
        "cpu",
        "ok",
        f"{m.cpu}: {m.physical_cores} cores, {m.usable_cores} usable",
        f"{m.cpu}：{m.physical_cores} 核，可用 {m.usable_cores}",
    )
    n = default_threads()
    source = "OMP_NUM_THREADS" if os.environ.get("OMP_NUM_THREADS") == str(n) else ""
    yield Finding("threads", "ok", f"{n} {source}".strip(), f"{n} {source}".strip())
    if m.memory_mb < LITTLE_MEMORY_MB:
        yield Finding(
            "memory",
            "warn",
            f"{m.memory_mb} MB, which is little for two frameworks",
            f"{m.memory_mb} MB，对两个框架来说偏少",
            "run one backend at a time, or with --quick",
            "一次只运行一个后端，或使用 --quick",
        )
    else:
        yield Finding("memory", "ok", f"{m.memory_mb} MB", f"{m.memory_mb} MB")
    if m.gpus:
        for gpu in m.gpus:
            told = f"{gpu.name}, {gpu.memory_mb} MB"
            yield Finding("gpu", "ok", told, told)
        driver = f"{m.gpus[0].driver}, CUDA {m.cuda_driver or '?'}"
        yield Finding("cuda driver", "ok", driver, driver)
    else:
        yield Finding("gpu", "ok", "none (nvidia-smi finds none)", "无（nvidia-smi 未找到）")


def _data() -> Iterator[Finding]:
    """Where each dataset is, as `dualml data list` finds it."""
    from dualml.data.overview import overview

    for row in overview():
        name = f"data {row['name']}"
        if row["problem"]:
            en, _, remedy = str(row["problem"]).partition("; remedy: ")
            remedy = remedy or f"dualml data verify {row['name']}"
            yield Finding(name, "problem", en, f"数据有问题：{en}", remedy, remedy)
        elif row["found"] == "absent":
            get = f"dualml data get {row['name']}"
            yield Finding(
                name,
                "warn",
                "not on this machine; labs download it, or fall back to the embedded digits",
                "本机没有；实验会下载它，否则改用内置手写数字",
                f"{get}, or set DUALML_DATA",
                f"{get}，或设置 DUALML_DATA",
            )
        else:
            where = row["folder"] or ""
            source = {
                "embedded": ("embedded", "内置"),
                "env": ("in DUALML_DATA: ", "位于 DUALML_DATA："),
                "cache": ("in the cache: ", "位于缓存："),
            }.get(str(row["found"]), (str(row["found"]), str(row["found"])))
            yield Finding(name, "ok", f"{source[0]}{where}", f"{source[1]}{where}")


def _cache() -> Finding:
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return Finding(
            "cache",
            "problem",
            f"{folder} cannot be written: {error.strerror}",
            f"{folder} 不可写：{error.strerror}",
            "set DUALML_CACHE to a folder you can write to",
            "将 DUALML_CACHE 设为可写的文件夹",
        )
    return Finding("cache", "ok", f"{folder} is writable", f"{folder} 可写")
