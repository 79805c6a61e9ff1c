"""Kinds of splits and aggregations: combinations of settings that exist, and those that do not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from dualml.common.strict_model import describe_validation_error
from dualml.common.tagged_union import TaggedUnion
from dualml.experiment.arm import make_arm
from dualml.experiment.keys import AGGREGATION, SPLIT, present_table
from dualml.experiment.schema import Experiment
from dualml.experiment.split import Split
from dualml.parallel.aggregation import SCHEMES, STRATEGIES
from dualml.parallel.aggregation.settings import Aggregation

DEVICES = ["cpu:0", "cpu:1"]
GRID = [["0F0", "0B0"], ["1F0", "1B0"]]
#: Setting → values of the right type. The first one is the default.
VALUES: dict[type[TaggedUnion], dict[str, list[Any]]] = {
    Split: {
        "stages": [0, 2],
        "cut": [[], ["fc2"]],
        "balance": ["parameters", "activations", "time"],
        "place": [[], [0, 1], [0, 1, 0]],
        "schedule": ["1f1b", "gpipe", "naive"],
        "grid": [[], GRID],
        "micro_batches": [1, 2, 3],
        "tensor": [1, 2],
        "layers": [{}, {"fc1": "column"}],
        "sequence": [False, True],
        "regather": [False, True],
        "context": [1, 2],
        "data": [1, 2],
        "trainers": [1, 2, 3],
        "arrival": ["synchronous", "asynchronous"],
        "engine": ["messages", "rpc", "devices"],
        "devices": [[], DEVICES, DEVICES[:1]],
        "transport": ["device", "host"],
    },
    Aggregation: {
        "strategy": ["all_reduce", *SCHEMES, *STRATEGIES],
        "of": ["gradients", "parameters"],
        "reduce": ["weighted", "mean", "sum", "max", "median"],
        "every": [1, 2],
        "bucket_bytes": [Aggregation.model_fields["bucket_bytes"].default, 0, 1000],
        "compress": ["none", "fp16", "topk"],
        "fraction": [0.01, 0.5],
        "arrival": ["planned", "free"],
        "overlap": [False, True],
        "cut": ["equal", "layers"],
    },
}
PLACES = {Split: SPLIT, Aggregation: AGGREGATION}
#: Tag → the settings that make a table of this kind.
TAGGED: dict[type[TaggedUnion], dict[str, dict[str, Any]]] = {
    Split: {
        "messages": {},
        "asynchronous": {"arrival": "asynchronous", "trainers": 2, "micro_batches": 2},
        "rpc": {"engine": "rpc"},
        "devices": {"engine": "devices", "devices": DEVICES, "schedule": "naive"},
    },
    Aggregation: {
        "asynchronous": {"strategy": "parameter_server_async"},
        "framework": {"strategy": "native"},
        "averaging": {"of": "parameters"},
        "overlapped": {"overlap": True},
        "compressed": {"compress": "fp16"},
        "gradients": {},
    },
}
#: Tag → words by which an error names the kind.
NAMED_BY: dict[type[TaggedUnion], dict[str, tuple[str, ...]]] = {
    Split: {
        "messages": ('engine = "messages"',),
        "asynchronous": ("update_mode = asynchronous", 'engine = "messages"'),
        "rpc": ("engine = rpc", 'engine = "rpc"'),
        "devices": ("engine = devices", 'engine = "devices"'),
    },
    Aggregation: {
        "asynchronous": ("parameter_server_async", "target = parameters"),
        "framework": ("native", "replicas", "target = parameters"),
        "averaging": ("target = parameters", "strategy = "),
        "overlapped": ("overlap = true", "target = parameters", "strategy = "),
        "compressed": ("gradients", "strategy = ", "compress = "),
        "gradients": ("gradients", "strategy = "),
    },
}
UNIONS = list(VALUES)
by_union = pytest.mark.parametrize("union", UNIONS, ids=lambda union: union.__name__)


def tables(union: type[TaggedUnion]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw tables of every kind, most with few settings: with many, hardly any is valid."""
    values = {key: st.sampled_from(each) for key, each in VALUES[union].items()}
    few = st.lists(st.sampled_from(list(values)), max_size=4, unique=True)
    drawn = few.flatmap(lambda keys: st.fixed_dictionaries({key: values[key] for key in keys}))
    some = st.fixed_dictionaries({}, optional=values)
    kinds = st.sampled_from(list(TAGGED[union].values()))
    return st.tuples(kinds, drawn | some).map(lambda parts: {**parts[0], **parts[1]})


@by_union
def test_the_values_are_of_all_settings_and_begin_with_the_default(
    union: type[TaggedUnion],
) -> None:
    assert list(VALUES[union]) == list(union.model_fields)
    assert all(
        values[0] == union.model_fields[key].default for key, values in VALUES[union].items()
    )
    assert set(TAGGED[union]) == set(NAMED_BY[union]) == set(union.kinds)


@by_union
def test_a_table_exists_in_its_kind_or_is_refused_by_field_and_kind(
    union: type[TaggedUnion],
) -> None:
    accepted, refused = set[str](), set[str]()

    @settings(max_examples=400, deadline=None, derandomize=True)
    @given(tables(union))
    def try_table(table: dict[str, Any]) -> None:
        tag = union.infer_tag(table)
        try:
            made = union(**table)
        except ValidationError as error:
            refused.add(tag)
            text = describe_validation_error(error, union)
            fields = present_table(dict.fromkeys(union.model_fields), PLACES[union])
            where = text.partition(":")[0]
            assert where in union.model_fields or any(field in text for field in fields), text
            assert any(words in text for words in NAMED_BY[union][tag]), (tag, text)
            assert "{" not in text
            assert "kind:" not in text
            return
        accepted.add(tag)
        assert type(made) is union.kinds[tag]
        assert list(made.model_dump()) == list(union.model_fields)
        assert union.model_validate(json.loads(made.model_dump_json(exclude_unset=True))) == made

    try_table()
    assert accepted == refused == set(union.kinds)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(tables(Split), tables(Aggregation), st.booleans())
def test_an_arm_in_a_file_or_a_plan_is_read_again_as_the_same_record(
    split: dict[str, Any], aggregation: dict[str, Any], whole: bool
) -> None:
    arm = {"optimizer": {"name": "sgd", "lr": 0.1}, "world_size": 2}
    arm |= {"aggregation": aggregation} if whole else {"split": split}
    table = {"name": "x", "title": {}, "data": {"name": "digits"}, "model": "mlp"}
    try:
        made = Experiment.model_validate({**table, "arms": {"a": arm}})
    except ValidationError:
        return
    stored = json.loads(json.dumps(made.describe()))
    again = Experiment.model_validate(stored)
    assert again == made
    assert again.describe() == made.describe()
    assert set(stored["arms"]["a"].get("split", {})) <= set(split)


@by_union
@pytest.mark.parametrize("make", ["model_validate", "model_construct", "model_copy"])
def test_a_record_is_of_the_kind_that_its_settings_are_of(
    union: type[TaggedUnion], make: str
) -> None:
    makers: dict[str, Callable[[dict[str, Any]], TaggedUnion]] = {
        "model_validate": union.model_validate,
        "model_construct": lambda table: union.model_construct(**table),
        "model_copy": lambda table: union().model_copy(update=table),
    }
    for tag, table in TAGGED[union].items():
        made = makers[make](table)
        assert type(made) is union.kinds[tag]
        assert made == union(**table)
        assert made.model_fields_set == set(table)


@by_union
def test_a_kind_takes_no_table_of_another(union: type[TaggedUnion]) -> None:
    for tag, kind in union.kinds.items():
        for other, table in TAGGED[union].items():
            if other == tag:
                assert kind(**table) == union(**table)
                continue
            with pytest.raises(ValidationError):
                kind(**table)


def test_arms_have_splits_of_their_own_kind() -> None:
    arm = make_arm(optimizer={"name": "sgd", "lr": 0.1}, split=TAGGED[Split]["devices"])
    assert type(arm.split) is Split.kinds["devices"]
    assert type(arm).model_fields["split"].annotation is type(arm.split)
