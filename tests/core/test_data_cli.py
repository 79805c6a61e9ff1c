"""`dualml data list`, `get` and `verify`."""

import json
import subprocess
import sys

import data_files
import pytest
from typer.testing import CliRunner

from dualml.common.errors import UserError
from dualml.experiment.data import DATASETS, idx, load
from dualml.experiment.data.registry import FILE_NAMES
from dualml.interface.cli.data import app

PARTS = data_files.arrays()


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALML_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DUALML_DATA", raising=False)
    monkeypatch.setenv("DUALML_OFFLINE", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setitem(DATASETS, "mnist", data_files.info_for(PARTS))
    return tmp_path


def call(*args):
    return CliRunner().invoke(app, [str(a) for a in args])


def test_list_says_where_everything_is(home, monkeypatch):
    rows = {r["name"]: r for r in json.loads(call("list", "--json").stdout)}
    images = ["mnist", "fashion_mnist", "digits", "cifar10", "cifar100", "cifar100_coarse"]
    assert list(rows) == [*images, "emotion", "sentences", "feelings"]
    found = ["absent", "absent", "embedded", "absent", "absent", "absent"]
    found += ["absent", "generated", "generated"]
    assert [r["found"] for r in rows.values()] == found
    assert all(r["licence"] and r["provenance"] for r in rows.values())
    assert rows["fashion_mnist"]["bytes"] == 47_040_016 + 60_008 + 7_840_016 + 10_008

    data_files.write(home / "cache" / "mnist", PARTS)
    assert json.loads(call("list", "--json").stdout)[0]["found"] == "cache"
    folder = data_files.write(home / "env" / "mnist", PARTS)
    monkeypatch.setenv("DUALML_DATA", str(home / "env"))
    row = json.loads(call("list", "--json").stdout)[0]
    assert (row["found"], row["folder"]) == ("env", str(folder))
    (folder / FILE_NAMES[0]).unlink()
    result = call("list")
    assert result.exit_code == 0
    assert "incomplete" in result.stdout
    assert f"missing: {FILE_NAMES[0]}" in result.stdout
    assert "CC BY-SA 3.0" in result.stdout


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_get_from_a_folder(home, packed, nested):
    data_files.write(home / "usb" / "mnist", PARTS, packed=packed)
    result = call("get", "mnist", "--from", home / "usb" if nested else home / "usb" / "mnist")
    assert result.exit_code == 0
    assert result.stdout == f"mnist: {home / 'cache' / 'mnist'}\n"
    assert load("mnist", explicit=True).source == "cache"
    assert call("verify", "mnist").exit_code == 0


def test_get_from_a_folder_takes_all_or_nothing(home):
    folder = data_files.write(home / "usb", PARTS)
    (folder / FILE_NAMES[3]).write_bytes(idx.encode(1 - PARTS[3] // 9))
    with pytest.raises(UserError, match=f"{FILE_NAMES[3]} has the right size but other contents"):
        raise call("get", "mnist", "--from", folder).exception
    assert not (home / "cache").exists()
    (folder / FILE_NAMES[3]).unlink()
    with pytest.raises(UserError, match=f"found 3; missing .plain or .gz.: {FILE_NAMES[3]}"):
        raise call("get", "mnist", "--from", folder).exception
    with pytest.raises(UserError, match="nowhere is not a folder"):
        raise call("get", "mnist", "--from", home / "nowhere").exception


def test_get_without_a_network(home):
    with pytest.raises(UserError, match="mnist could not be downloaded"):
        raise call("get", "mnist").exception


def test_get_what_needs_no_getting(home):
    assert call("get", "digits").stdout == "digits is embedded: nothing to get\n"
    told = json.loads(call("get", "digits", "--json").stdout)
    assert told == {"schema": "dualml.data/1", "name": "digits", "folder": None}


def test_verify_names_the_bad_file(home):
    folder = data_files.write(home / "mine", PARTS, packed=True)
    assert call("verify", "mnist", "--dir", folder).exit_code == 0
    bad = folder / f"{FILE_NAMES[2]}.gz"
    bad.write_bytes(bad.read_bytes()[:-9])
    result = call("verify", "mnist", "--dir", folder, "--json")
    rows = json.loads(result.stdout)
    assert [r["problem"] is None for r in rows] == [True, True, False, True]
    with pytest.raises(UserError, match=f"{bad} is cut off"):
        raise result.exception
    (folder / f"{FILE_NAMES[0]}.gz").unlink()
    result = call("verify", "mnist", "--dir", folder)
    assert result.stdout.count("BAD") == 2
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte is missing.*\(and 1 more\)"):
        raise result.exception


def test_verify_the_embedded_digits(home):
    assert call("verify", "digits").exit_code == 0


def test_verify_what_is_nowhere(home):
    with pytest.raises(UserError, match="neither in DUALML_DATA nor in the cache"):
        raise call("verify", "mnist").exception
    with pytest.raises(UserError, match="nowhere is not a folder"):
        raise call("verify", "mnist", "--dir", home / "nowhere").exception


@pytest.mark.parametrize("command", ["get", "verify"])
def test_unknown_dataset(home, command):
    with pytest.raises(UserError, match="did you mean 'mnist'"):
        raise call(command, "mnst").exception


def test_help_needs_nothing_heavy():
    heavy = "{'numpy', 'pooch', 'requests', 'sklearn', 'torch', 'mindspore'}"
    code = f"import sys, dualml.interface.cli.data; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
