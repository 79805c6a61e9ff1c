"""Users' models that are refused before anything starts, and models that are found again."""

from __future__ import annotations

import unittest
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualml import parity
from dualml.backend import BackendInfo
from dualml.common.errors import UserError
from dualml.common.words import section_messages
from dualml.parity import compare
from dualml.parity.models import run
from dualml.parity.models.model_ref import COMPARING_VARIABLE, load_builder, to_import_spec
from dualml.parity.models.trace import hash_array
from dualml.parity.models.worker import required_arguments
from dualml.parity.testing import assert_parity


class Net:
    """A model as it stands in a user's file."""


X = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Net(), "torch_module is a live Net: each framework runs in a process of its own"),
        (lambda: Net(), "torch_module is a lambda"),
        (type("Inner", (), {"__qualname__": "f.<locals>.Inner"}), "inside a function"),
        ("models.py", "must read 'module:Name' or 'file.py:Name'"),
        ("gone.py:Net", "there is no file 'gone.py'"),
    ],
)
def test_a_model_that_another_process_cannot_build(model: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        to_import_spec(model, "torch_module")


def test_a_class_is_found_again_by_module_or_file() -> None:
    told = to_import_spec(Net, "torch_module")
    assert load_builder(told).__name__ == "Net"
    again = load_builder({**told, "module": "not_on_the_path"})
    assert again.__name__ == "Net"
    assert again is not Net
    with pytest.raises(UserError, match=r"has no 'Missing'; it has"):
        load_builder({**told, "name": "Missing"})


def test_a_file_that_cannot_be_imported_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("import math\nimport not_there\n")
    with pytest.raises(UserError, match=r"ModuleNotFoundError: .*not_there.* \(model.py, line 2\)"):
        load_builder(to_import_spec(f"{path}:Net", "torch_module"))


@pytest.fixture
def present(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate both frameworks with the module `json`, which every Python has."""
    known = {n: BackendInfo(n, "json", f"pip install {n}", f"{n}_:X") for n in run.FRAMEWORKS}
    monkeypatch.setattr(run, "backends", lambda: known)


@pytest.mark.usefixtures("present")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"steps": 0}, "steps and draws >= 1"),
        ({"steps": 2}, "steps=2 needs an optimizer"),
        ({"loss": "huber"}, "unknown loss 'huber'"),
        ({"loss": "mse"}, "loss 'mse' needs targets"),
        ({"loss": "cross_entropy", "targets": X}, "takes class numbers; targets are float32"),
        ({"loss": "mse", "targets": [1, 2]}, "targets of the outputs' shape"),
        ({"targets": [1, 2]}, "loss 'probe' takes no targets"),
        ({"loss": ("m:f",)}, r"loss must be a pair of functions of \(outputs, targets\)"),
        ({"optimizer": {"name": "adam"}}, "optimizer 'adam' needs lr"),
        ({"optimizer": {"name": "adma", "lr": 1}}, "did you mean 'adam'"),
        ({"optimizer": "adam"}, "a pair of functions of the list of parameters"),
        ({"inputs": {"x": X}}, "not a dict"),
        ({"inputs": ()}, "inputs: at least one array"),
        ({"inputs": np.array(["a"])}, "must hold numbers"),
        ({"inputs": object()}, "must be NumPy arrays"),
    ],
)
def test_arguments_that_cannot_be_meant(options: dict[str, Any], said: str) -> None:
    given = {"inputs": X, **options}
    with pytest.raises(UserError, match=said):
        compare(Net, Net, given.pop("inputs"), **given)


def test_a_missing_framework_is_said_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {n: BackendInfo(n, "no_such_" + n, f"pip install {n}", "") for n in run.FRAMEWORKS}
    monkeypatch.setattr(run, "backends", lambda: known)
    with pytest.raises(UserError, match=r"install no_such_torch .pip install torch. and no_such_"):
        compare(Net, Net, X)
    monkeypatch.setattr("dualml.parity.testing.backends", lambda: known)
    with pytest.raises(unittest.SkipTest, match="no_such_torch is not installed"):
        assert_parity(Net, Net, X)


def test_a_worker_does_not_compare_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMPARING_VARIABLE, "1")
    with pytest.raises(UserError, match='put the call under if __name__ == "__main__"'):
        compare(Net, Net, X)


def test_the_two_languages_say_the_same() -> None:
    english, chinese = (section_messages(lang, "models") for lang in ("en", "zh"))
    assert english.keys() == chinese.keys()
    for name, text in english.items():
        fields = {word.partition("}")[0] for word in text.split("{")[1:]}
        other = {word.partition("}")[0] for word in chinese[name].split("{")[1:]}
        assert {f.partition(":")[0] for f in fields} == {f.partition(":")[0] for f in other}, name


def test_the_package_offers_functions_not_modules() -> None:
    assert callable(parity.compare)
    assert hash_array(X) == hash_array(X.astype(np.float64))
    assert hash_array(X) != hash_array(X.reshape(3, 2))
    with pytest.raises(AttributeError):
        _ = parity.nothing


def test_arguments_that_a_builder_needs() -> None:
    def net(width: int, *rest: int, depth: int = 2, **more: int) -> None: ...

    assert required_arguments(net) == ["width"]
    assert required_arguments(dict) == []  # it does not tell
