"""Programs in the encodings that students' editors write: the code shown is the code run."""

from __future__ import annotations

import codecs
import os
from pathlib import Path

import pytest

from dualml.course.encoding import decode_names, decode_program, guess_encoding, presentable
from dualml.course.labs import load_lab
from dualml.course.source import (
    MAX_PROBLEMS_PER_KIND,
    MAX_SOURCE_BYTES,
    examine,
    read_legible,
    read_program,
)

TORCH = load_lab("lab1").files[0]
SIMPLIFIED = "# 作业：随机梯度下降法，带动量的更新\nname = '李雷'\n"
TRADITIONAL = "# 作業：隨機梯度下降法，帶動量的更新\nname = '陳大文'\n"


def value_of(program: bytes) -> object:
    names: dict[str, object] = {}
    exec(compile(program, "program", "exec"), names)
    return names["name"]


@pytest.mark.parametrize(
    ("coding", "text"),
    [
        ("utf-8", SIMPLIFIED),
        ("utf-8-sig", SIMPLIFIED),
        ("gbk", SIMPLIFIED),
        ("gb18030", SIMPLIFIED),
        ("big5", TRADITIONAL),
        ("utf-16", SIMPLIFIED),
        ("utf-16-le", SIMPLIFIED),
        ("utf-16-be", "name = '李雷'\nother = 'ascii text of a program'\n"),
        ("utf-32", SIMPLIFIED),
        ("gbk", "# -*- coding: gbk -*-\nname = '李雷'\n"),
        ("big5", "#!/usr/bin/python\n# vim: set fileencoding=big5 :\nname = '陳大文'\n"),
        ("gbk", "# -*- coding: utf-8 -*-\n" + SIMPLIFIED),
        ("latin-1", "# coding: latin-1\nname = 'é'"),
        ("utf-16", "# coding: gbk\nname = '李雷'\n"),
        ("utf-8", "# coding: utf-8\nname = '李雷'\n"),
    ],
)
def test_what_is_shown_is_what_is_run(coding: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_bytes(text.replace("\n", "\r\n").encode(coding))
    shown = read_program(path)
    assert read_legible(path) == shown
    wanted = text.partition("name = '")[2].partition("'")[0]
    assert wanted
    assert value_of(shown.encode()) == wanted
    assert [line.count("#") for line in shown.split("\n")] == [
        line.count("#") for line in text.split("\n")
    ]
    assert not [p for p in examine(path, TORCH) if p.kind in ("text", "syntax")]


def test_a_coding_line_decides_where_python_says(tmp_path: Path) -> None:
    assert "coding: gbk" in decode_program(b"x = 1\ny = 2\n# coding: gbk\n")
    assert "coding: gbk" in decode_program(b"x = 1\n# coding: gbk\n")
    assert "coding: utf-8" in decode_program(b"\n# coding: gbk\n")
    assert decode_program("# coding: gbk\r\nx = '李'\r\n".encode("gbk")) == (
        "# coding: utf-8\nx = '李'\n"
    )


@pytest.mark.parametrize(
    "content",
    [
        b"# coding: hex\nx = 1",
        b"# coding: nothing-such\n",
        b"# coding: punycode\n" + b"a" * 1000,
        b"# coding: rot13\n",
        b"# \xff\xfe\xfd\n",
        codecs.BOM_UTF8 + b"\xff",
        b"# coding: unicode_escape\n\\ud800",
        b"caf\xe9 = 1\n",
        b"\x80\x81\x82" * 9,
    ],
)
def test_what_is_no_text_is_said_and_still_shown(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / TORCH.name
    path.write_bytes(content)
    with pytest.raises((SyntaxError, ValueError)):
        read_program(path)
    assert [problem.kind for problem in examine(path, TORCH)] == ["text"]
    assert read_legible(path)


def test_big5_and_gbk_are_told_apart_by_frequent_characters() -> None:
    assert guess_encoding([SIMPLIFIED.encode("gbk")]) == "gb18030"
    assert guess_encoding([TRADITIONAL.encode("big5")]) == "cp950"
    assert guess_encoding([b"caf\xe9 r\xe9sum\xe9"]) is None
    assert decode_names([name.encode("big5") for name in ("王小明", "陳大文")]) == [
        "王小明",
        "陳大文",
    ]
    assert decode_names(["李".encode(), b"\xff\xff"]) == ["李", "\\xff\\xff"]


def test_what_is_not_a_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / TORCH.name)
    (tmp_path / "link.py").symlink_to("/dev/zero")
    for name in (TORCH.name, "link.py"):
        assert [problem.kind for problem in examine(tmp_path / name, TORCH)] == ["text"]
        with pytest.raises(OSError, match="not a file"):
            read_legible(tmp_path / name)


def test_files_that_take_long_to_look_at(tmp_path: Path) -> None:
    path = tmp_path / TORCH.name
    path.write_text("x" + ".a" * 2000 + "\n" + "eval\n" * 30_000)
    problems = examine(path, TORCH)
    assert sum(problem.kind == "roundabout" for problem in problems) == MAX_PROBLEMS_PER_KIND
    path.write_bytes(b"#" * (MAX_SOURCE_BYTES + 1))
    assert [problem.kind for problem in examine(path, TORCH)] == ["long"]


def test_texts_are_presentable() -> None:
    odd = {"a\x1b": ["\ud800\u202e\n", 1.5, None, ("x" * 9000,)]}
    shown = presentable(odd)
    assert list(shown) == ["a\\x1b"]
    assert shown["a\\x1b"][:3] == ["\\ud800\\u202e\n", 1.5, None]
    assert len(shown["a\\x1b"][3][0]) < 4100
    assert presentable("李雷 \u3000") == "李雷 \u3000"
