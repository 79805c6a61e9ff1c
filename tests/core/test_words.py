"""The messages in two languages: equal keys, equal placeholders, each in its own script."""

from __future__ import annotations

import importlib.util
import re
import string
from pathlib import Path

import pytest

from dualml.common.words import all_languages, load_messages, section_messages

PACKAGES = [
    name
    for name in ("dualml.common.words", "dualml_torch.words", "dualml_ms.words")
    if importlib.util.find_spec(name.partition(".")[0])
]
CHINESE = re.compile(r"[\u4e00-\u9fff\uff00-\uffef\u3000-\u303f]")


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_languages_have_the_same_keys_and_values(package: str) -> None:
    english, chinese = (load_messages(lang, package=package) for lang in ("en", "zh"))
    assert english.keys() == chinese.keys()
    for key, text in english.items():
        assert not CHINESE.search(text), key
    differ = {k for k, text in english.items() if fields(text) != fields(chinese[k])}
    assert differ <= {
        "notice.text",
        "notice.labelled",
        "notice.images",
        "doctor.says.isa_not_needed",
    }  # no English inside Chinese


def test_a_key_in_two_files_is_refused_with_both_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "repeated_words" / "en"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "mine.toml").write_text('[column]\ngap = "gap"\nown = "own"\n', "utf-8")
    (folder / "tables.toml").write_text('[column]\ngap = "distance"\n', "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"en/tables\.toml repeats column\.gap of en/mine\.toml"):
        load_messages("en", package="repeated_words")


def test_a_section_is_looked_up_by_the_rest_of_its_keys() -> None:
    assert section_messages("en", "notice")["offline"] == load_messages("en")["notice.offline"]
    assert section_messages("zh", "nothing of that name") == {}


def test_both_languages_at_once() -> None:
    texts = all_languages("notice.not_set", name="emotion")
    assert texts["en"] == "emotion cannot be downloaded, and DUALML_DATA is not set"
    assert CHINESE.search(texts["zh"])
