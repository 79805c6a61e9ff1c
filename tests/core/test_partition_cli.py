"""`dualml partition`: the real command, and what its tables say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import dualml, strict

from dualml.common.errors import UserError
from dualml.common.words import LANGUAGES, section_messages
from dualml.experiment.data import load
from dualml.interface.cli.partition import compact_number, count_cells
from dualml.interface.cli.partition import partition as command
from dualml.parallel.partition import (
    PARTITIONS,
    DirichletLabels,
    FromFile,
    RandomSampling,
    fingerprint,
)
from dualml.parallel.partition.from_file import load_partition

Y = load("digits", explicit=True).train_y


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder, a wide screen, no network, no MNIST."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("DUALML_OFFLINE", "1")
    monkeypatch.delenv("DUALML_DATA", raising=False)
    monkeypatch.setenv("DUALML_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs the command in this process and returns its output."""

    def call_command(name: str | None = None, *settings: str, **options: Any) -> str:
        command(name, list(settings) or None, **{"data": "digits" if name else None, **options})
        return capsys.readouterr().out

    return call_command


def test_the_table_from_the_outside(tmp_path: Path) -> None:
    done = dualml(
        *("partition", "dirichlet_labels", "--set", "alpha=0.1", "--set", "least=0"),
        *("--world-size", 5, "--data", "digits", "--seed", 3, "--out", "kept.npz"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    rule = DirichletLabels(alpha=0.1, least=0)
    parts = rule.partition(Y, 5, seed=3)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0][0] == "dirichlet_labels(alpha"
    assert "1,437 samples of digits to 5 ranks, seed 3, epoch 0" in done.stdout
    assert rows[2] == ["rank", "samples", *map(str, range(10)), "EMD", "JS"]
    for rank, part in enumerate(parts):
        counts = np.bincount(Y[part], minlength=10)
        shown = [str(c) if c else "·" for c in counts]
        assert rows[3 + rank][:12] == [str(rank), str(len(part)), *shown]
        emd = np.abs(counts / len(part) - np.bincount(Y) / len(Y)).sum() / 2
        assert float(rows[3 + rank][12]) == pytest.approx(emd, abs=6e-4)
    assert rows[8] == ["all", "1,437", *map(str, np.bincount(Y))]
    assert "Every sample is assigned to a rank.\nNo sample is assigned twice.\n" in done.stdout
    assert "Each rank keeps these samples in every epoch.\n" in done.stdout
    assert f"SHA-256 {fingerprint(parts)}\n→ kept.npz\n" in done.stdout
    kept = FromFile(path=str(tmp_path / "kept.npz"), shuffle=False)
    assert fingerprint(kept.partition(Y, 5)) == fingerprint(parts)
    told = load_partition(tmp_path / "kept.npz")[1]
    assert told["dataset"] == "digits"
    assert told["rule"] == rule.describe()


def test_a_wrong_word_is_one_line_from_the_outside() -> None:
    done = dualml("partition", "label_shard", "--data", "digits")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "dualml: unknown partition 'label_shard'; did you mean 'label_shards'?\n"
    )


def test_json_and_what_stands_in_for_mnist(ask: Any) -> None:
    text = ask("random_sampling", world_size=3, seed=2, epoch=4, json=True, data=None, lang="zh")
    told = strict(text)
    parts = RandomSampling().partition(Y, 3, seed=2, epoch=4)
    assert told["sha256"] == fingerprint(parts)
    assert told["partition"] == {"name": "random_sampling", "shuffle": True, "replacement": True}
    assert (told["data"], told["ranks"], told["seed"], told["epoch"]) == ("digits", 3, 2, 4)
    assert told["notice"].startswith("使用内置数据集 digits")
    assert told["sizes"] == [479, 479, 479]
    assert np.array(told["histogram"]).sum() == told["samples"] == 1437
    assert told["empty"] == []
    assert told["out"] is None
    shown = ask("contiguous", data=None)
    assert shown.startswith("! using the embedded dataset digits")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_what_holds_for_all_ranks_is_said_in_words(lang: str, ask: Any) -> None:
    def has_phrase(key: str, text: str, **values: Any) -> bool:
        return section_messages(lang, "partition.shown")[key].format(**values) in text

    text = ask("random_sampling", world_size=3, lang=lang)
    told = json.loads(ask("random_sampling", world_size=3, json=True))
    share = told["missed"] / 1437
    assert has_phrase("missed", text, n=told["missed"], of=1437, share=share)
    assert has_phrase("repeated", text, n=told["repeated"])
    assert has_phrase("shared", text, n=told["shared"])
    assert has_phrase("redeals", text)
    assert not has_phrase("covering", text)
    assert not has_phrase("disjoint", text)
    text = ask("fractions", "fractions=[0.5, 0, 0.5, 0]", lang=lang)
    assert has_phrase("covering", text)
    assert has_phrase("disjoint", text)
    assert has_phrase("keeps", text)
    assert has_phrase("empty", text, ranks="1, 3")
    assert re.search(r"^ *1 +0( +·){10} +– +–", text, re.M)
    assert (
        section_messages(lang, "partition.shown").keys()
        == section_messages("en", "partition.shown").keys()
    )


def test_many_ranks_and_narrow_screens(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = ask("label_classes", "assigned=[[0, 1], [2, 3, 4, 5, 6, 7, 8, 9]]", world_size=2)
    assert re.search(r"^ *0 +288 +[▁-█]{2}·{8} +0", text, re.M)
    assert "0 … 9" in text
    assert all(len(line) <= 60 for line in text.splitlines()[2:6])
    text = ask("round_robin", world_size=50)
    assert re.search(r"^ *39 ", text, re.M)
    assert not re.search(r"^ *40 ", text, re.M)
    assert "… and 10 more ranks (--json has them all)" in text
    assert len(json.loads(ask("round_robin", world_size=50, json=True))["sizes"]) == 50


def test_numbers_are_shaded_and_short() -> None:
    shades = [cell.shade for cell in count_cells([0, 10, 1000], wide=True)]
    assert shades == pytest.approx([0, 0.208, 1])
    for count, told in (
        *((0, "0"), (999, "999"), (1000, "1.0k"), (9949, "9.9k"), (9951, "10k")),
        *((999_499, "999k"), (999_500, "1.0M"), (12_345_678, "12M")),
    ):
        assert compact_number(count) == told
    assert all(len(compact_number(count)) <= 4 for count in range(0, 3_000_000, 37))


def test_the_rules_are_listed_in_both_languages(ask: Any) -> None:
    assert list(section_messages("zh", "partition.rule")) == list(PARTITIONS)
    rows = strict(ask(json=True))
    assert [row["name"] for row in rows] == list(PARTITIONS)
    settings = {row["name"]: row["settings"] for row in rows}
    assert settings["label_shards"] == {"shards": 2, "shuffle": True}
    assert settings["dirichlet_sizes"]["alpha"] is None
    english, chinese = ask(), ask(lang="zh")
    for row in rows:
        assert f"{row['name']}\n  {row['what']}\n" in english
        assert (
            f"{row['name']}\n  {section_messages('zh', 'partition.rule')[row['name']]}\n" in chinese
        )
        assert re.match(r"[A-Z].*[.…]$", row["what"])  # the whole first sentence
    assert "settings: alpha (needed), least = 1, tries = 1000, shuffle = true" in english
    assert "参数：alpha（必填）" in chinese


@pytest.mark.parametrize(
    ("name", "settings", "options", "told"),
    [
        ("dirichlet_sizes", ["alpha"], {}, "--set takes KEY=VALUE"),
        ("dirichlet_sizes", ["alpha=few"], {}, "alpha must be a float; received alpha = 'few'"),
        ("dirichlet_sizes", ["alpha=1", "name=3"], {}, "has no setting 'name'"),
        ("dirichlet_sizes", ["alpha=1", "a.b=1"], {}, "has no setting 'a'; known: alpha"),
        ("dirichlet_sizes", [], {}, "needs alpha"),
        ("contiguous", [], {"world_size": 0}, "0 ranks cannot share 1437 samples"),
        ("contiguous", [], {"world_size": 1438}, "1438 ranks cannot share 1437 samples"),
        ("contiguous", [], {"data": "mnst"}, "did you mean 'mnist'"),
        ("contiguous", [], {"data": "mnist"}, "mnist could not be downloaded"),
        ("file", ["path=no.npz"], {}, "there is no partition file no.npz"),
        (None, ["alpha=1"], {}, "name the partition; dualml partition lists them"),
        (None, [], {"out": Path("x.npz")}, "name the partition"),
    ],
)
def test_what_cannot_be_meant(
    name: str | None, settings: list[str], options: dict[str, Any], told: str, ask: Any
) -> None:
    with pytest.raises(UserError, match=re.escape(told)):
        ask(name, *settings, **options)


def test_a_file_is_never_overwritten(ask: Any, tmp_path: Path) -> None:
    there = tmp_path / "there.npz"
    there.write_bytes(b"mine")
    with pytest.raises(UserError, match=r"there\.npz is there already; choose another --out"):
        ask("contiguous", out=there)
    assert there.read_bytes() == b"mine"
    ask("contiguous", out=tmp_path / "new.npz", json=True)
    with pytest.raises(UserError, match=r"new\.npz is for 4 ranks, not for 2"):
        ask("file", f"path={tmp_path / 'new.npz'}", world_size=2)
    with pytest.raises(OSError, match="No such file"):
        ask("contiguous", out=tmp_path / "no" / "where.npz")
