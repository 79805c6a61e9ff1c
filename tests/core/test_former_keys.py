"""Keys of experiment files are read by present and by former names, and stored alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from dualml.common.errors import UserError
from dualml.experiment import keys
from dualml.experiment.arm import Arm
from dualml.experiment.keys import (
    AGGREGATION,
    ARM,
    RENAMED_KEYS,
    SPLIT,
    WrittenKeys,
    find_key,
    present_table,
)
from dualml.experiment.load import load
from dualml.experiment.schema import Experiment
from dualml.experiment.split import Split
from dualml.parallel.aggregation.settings import Aggregation

HEAD = """
name = "two"
title = { en = "Two", zh = "二" }
model = "mlp"
data = { name = "digits" }
"""
ARM_TEXT = """
[arms.one]
optimizer = { name = "adam", lr = 0.01 }
batch_size = 64
epochs = 1
"""
#: Key → TOML by its present name, by its former one, and what an arm (or the experiment) then has.
EXAMPLES: dict[str, tuple[str, str, str, Any]] = {
    "epochs_multiplier": ("epochs_multiplier = 2", "epochs_times = 2", "epochs_times", 2.0),
    "accumulation_batch": ("accumulation_batch = 16", "chunk = 16", "chunk", 16),
    "cores_per_rank": ("cores_per_rank = 1", "cores = 1", "cores", 1),
    "partition_ranks": (
        'partition_ranks = 2\npartition = { name = "contiguous" }',
        'dealt_to = 2\npartition = { name = "contiguous" }',
        "dealt_to",
        2,
    ),
    "straggler": (
        "world_size = 2\nstraggler = { rank = 1, compute = 2.0 }",
        "world_size = 2\nslow = { rank = 1, compute = 2.0 }",
        "slow.rank",
        1,
    ),
    "zero_param_dtype": (
        'world_size = 2\nzero = 1\nprecision = "bf16"\nzero_param_dtype = "precision"',
        'world_size = 2\nzero = 1\nprecision = "bf16"\nzero_lower = true',
        "zero_lower",
        True,
    ),
    "arrival_order": (
        'world_size = 2\naggregation = { strategy = "parameter_server_async", '
        'arrival_order = "nondeterministic" }',
        'world_size = 2\naggregation = { strategy = "parameter_server_async", arrival = "free" }',
        "aggregation.arrival",
        "free",
    ),
    "sync_period": (
        'world_size = 2\naggregation = { target = "parameters", sync_period = 4 }',
        'world_size = 2\naggregation = { of = "parameters", every = 4 }',
        "aggregation.every",
        4,
    ),
    "target": (
        'world_size = 2\naggregation = { target = "parameters" }',
        'world_size = 2\naggregation = { of = "parameters" }',
        "aggregation.of",
        "parameters",
    ),
    "update_mode": (
        "world_size = 3\nsplit = { stages = 2, place = [0, 1], trainers = 2, micro_batches = 2, "
        'update_mode = "asynchronous" }',
        "world_size = 3\nsplit = { stages = 2, place = [0, 1], trainers = 2, micro_batches = 2, "
        'arrival = "asynchronous" }',
        "split.arrival",
        "asynchronous",
    ),
}


@pytest.fixture(autouse=True)
def _forget_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "_printed", set())


def write(folder: Path, text: str, head: bool = False) -> str:
    path = folder / "two.toml"
    path.write_text(HEAD + (text + ARM_TEXT if head else ARM_TEXT + text) + "\n", "utf-8")
    return str(path)


def stored(experiment: Experiment, key: str, dotted: str) -> Any:
    value: Any = experiment if key == "epochs_multiplier" else experiment.arms["one"]
    for part in dotted.split("."):
        value = getattr(value, part)
    return value


def test_every_key_has_an_example() -> None:
    assert EXAMPLES.keys() == {key.present for key in RENAMED_KEYS}


@pytest.mark.parametrize("key", EXAMPLES)
def test_both_names_mean_the_same(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    present, former, dotted, value = EXAMPLES[key]
    head = key == "epochs_multiplier"
    one = load(write(tmp_path, present, head))
    assert capsys.readouterr().err == ""
    assert stored(one, key, dotted) == value
    path = write(tmp_path, former, head)
    other = load(path)
    assert other.describe() == one.describe()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"dualml: {path}: ")
    assert f"{dotted.removesuffix('.rank')} is now {key}" in line
    load(path, seeds=[1])
    assert capsys.readouterr().err == ""  # once per file


def test_an_option_takes_both_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, EXAMPLES["sync_period"][0] + "\nstraggler = { rank = 1 }")
    pairs = {
        "arms.one.aggregation.sync_period=8": "arms.one.aggregation.every=8",
        "arms.one.straggler.compute=3": "arms.one.slow.compute=3",
        'arms.one.aggregation={target="parameters", sync_period=2}': "arms.one.aggregation="
        '{of="parameters", every=2}',
        "epochs_multiplier=2": "epochs_times=2",
    }
    plain = load(path).describe()
    for present, former in pairs.items():
        one = load(path, overrides=[present]).describe()
        assert one != plain
        assert capsys.readouterr().err == ""
        assert load(path, overrides=[former]).describe() == one
        assert capsys.readouterr().err.startswith(f"dualml: --set {former}: ")
        assert load(path, overrides=[former, present]).describe() == one


def test_quick_and_small_tables_take_the_present_names(tmp_path: Path) -> None:
    text = EXAMPLES["sync_period"][0] + (
        "\n[quick]\narms.one.accumulation_batch = 8\n[quick.small]\nepochs_multiplier = 3"
    )
    experiment = load(write(tmp_path, text), quick=True, small=True)
    assert experiment.arms["one"].chunk == 8
    assert experiment.arms["one"].epochs == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cores_per_rank = -1", r"two\.toml, line \d+: arms\.one\.cores_per_rank: Input should"),
        ("cores = -1", r"two\.toml, line \d+: arms\.one\.cores: Input should"),
        ("partition_ranks = 2", "partition_ranks = 2 needs a partition"),
        ("dealt_to = 2", ": arms.one: dealt_to = 2 needs a partition"),
        ("world_size = 2\naggregation = { sync_period = 4 }", "sync_period = 4 needs target = par"),
        ('world_size = 2\naggregation = { every = 4, of = "gradients" }', "every = 4 needs of = "),
        ("zero_lower = true", "zero_lower = true keeps float32 weights"),
        ('zero_param_dtype = "precision"', "zero_param_dtype = precision keeps float32 weights"),
        ("zero_param_dtype = true", "'fp32' or 'precision'; received True"),
        (
            'aggregation = { arrival_order = "free" }',
            r"line \d+: arms\.one\.aggregation\.arrival_order: Input should be 'deterministic' or "
            r"'nondeterministic'; received 'free'",
        ),
        ("cores = 1\ncores_per_rank = 1", "cores_per_rank is the present name of cores; leave out"),
        ("partition_rank = 2", r"unknown key arms\.one\.partition_rank.*partition_ranks"),
        ("straggler = { rank = 4 }", "straggler.rank = 4, but world_size is 1"),
        ("slow = { rang = 4 }", r"unknown key arms\.one\.slow\.rang.*rank"),
    ],
)
def test_an_error_names_the_key_that_was_written(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(write(tmp_path, text))


def test_an_error_of_an_option_names_the_key_that_was_written(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    for name in ("cores", "cores_per_rank"):
        text = f"arms.one.{name}=-1"
        with pytest.raises(UserError, match=f"--set {text}: arms.one.{name}: Input should"):
            load(path, overrides=[text])


def test_an_arm_may_be_called_like_a_key() -> None:
    table: dict[str, Any] = {"arms": {"slow": {"chunk": 2}}}
    WrittenKeys().store(table, "here")
    assert table == {"arms": {"slow": {"chunk": 2}}}
    assert find_key(["arms"], "slow") is None
    assert find_key(["arms", "slow"], "slow") is not None


def test_a_stored_table_is_shown_by_the_present_names() -> None:
    shown = present_table({"of": "parameters", "every": 4, "arrival": "free"}, AGGREGATION)
    assert shown == {
        "target": "parameters",
        "sync_period": 4,
        "arrival_order": "nondeterministic",
    }


def test_the_stored_names_are_those_of_the_schema() -> None:
    models: dict[tuple[str, ...], type[BaseModel]] = {
        (): Experiment,
        ARM: Arm,
        AGGREGATION: Aggregation,
        SPLIT: Split,
    }
    for key in RENAMED_KEYS:
        fields = models[key.place].model_fields
        assert key.stored in fields
        assert key.present not in fields
