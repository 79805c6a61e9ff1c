"""An engine's own configuration of a method: read from a file, and checked against the plan.

The plan decides what is trained: batches, optimizer, precision, sharding. The file decides how:
sizes of buckets, whether messages overlap with the backward pass. A file that contradicts the plan
is refused, since one of the two would be ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dualml.common.errors import UserError
from dualml.common.files import read_bytes
from dualml.common.json_types import JsonMapping, JsonObject
from dualml.common.parse import from_json
from dualml.experiment.methods.registry import METHODS, MethodInfo

#: Largest number of bytes of a configuration.
MAX_CONFIG_BYTES = 2**16
#: Keys that are passed on unchanged, or after a check against the plan.
KEYS = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
    *("optimizer", "scheduler", "fp16", "bf16", "gradient_clipping", "zero_optimization"),
    *("prescale_gradients", "gradient_predivide_factor", "sparse_gradients", "aio"),
    *("communication_data_type", "seq_parallel_communication_data_type", "data_types"),
    *("activation_checkpointing", "steps_per_print", "wall_clock_breakdown", "log_dist"),
    *("zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "disable_allgather"),
)
AUTO = "auto"


def read_config(path: Path) -> dict[str, Any]:
    """Read an engine's configuration, an object of JSON.

    Raises:
        UserError: the file is missing, too large, no JSON, or no object.
    """
    try:
        content = read_bytes(path, MAX_CONFIG_BYTES)
    except OSError as error:
        raise UserError(f"method_config: cannot read {path}: {error.strerror or error}") from None
    try:
        table = from_json(content)
    except ValueError as error:
        raise UserError(f"method_config: {path} is not JSON: {error}") from None
    if not isinstance(table, dict):
        raise UserError(
            f'method_config: {path} must be an object of JSON, as {{"zero_optimization'
            '": {"reduce_bucket_size": 1000000}}'
        )
    return table


def check_config(
    config: Mapping[str, Any], name: str, batch_size: int, world_size: int, rule: Mapping[str, Any]
) -> None:
    """Check an engine's configuration against an arm.

    Args:
        config: the configuration, as `read_config` returns it.
        name: name of the arm's method.
        batch_size: samples of an update over all ranks.
        world_size: number of ranks.
        rule: the arm's optimizer, ``name`` and hyperparameters.

    Raises:
        UserError: the method takes no configuration, or it has a key that is not passed on (the
            text has the first), or values that contradict the arm (the text has all).
    """
    info = next((method for method in _configured_methods() if method.name == name), None)
    if info is None:
        raise UserError(explain_no_config(name))
    for key in config:
        if key not in KEYS:
            raise UserError(
                f"method_config has {key}, which dualml does not hand on to "
                f"{info.title}: leave it out"
            )
    wrong = [
        *_batches(config, batch_size, world_size),
        *_optimizer(config, rule),
        *_clipping(config),
        *_precision(config, info),
        *_sharing(config, info),
    ]
    if wrong:
        raise UserError(f"method_config contradicts the arm: {'; '.join(wrong)}")


def explain_no_config(name: str) -> str:
    """Return why a method of this name, or an arm without a method (an empty name), takes no
    configuration, as text for a message."""
    known = ", ".join(method.name for method in _configured_methods())
    return (
        f"method_config is for methods that take one ({known}); method = {name or 'none'}: leave "
        "it out"
    )


def _configured_methods() -> list[MethodInfo]:
    """Return the methods that take a configuration."""
    return [m for methods in METHODS.values() for m in methods.values() if m.configured]


def without_planned_keys(config: JsonMapping) -> JsonObject:
    """Return a copy of a configuration without the batch sizes, the optimizer and the scheduler,
    which the plan decides; whether they agree with the plan is not checked."""
    decided = (
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
        "optimizer",
        "scheduler",
    )
    return {key: value for key, value in config.items() if key not in decided}


def _batches(config: Mapping[str, Any], batch_size: int, world_size: int) -> Iterator[str]:
    """Yield contradictions between the configured batch sizes and the arm's; a missing or ``auto``
    size contradicts nothing."""
    whole = config.get("train_batch_size", AUTO)
    part = config.get("train_micro_batch_size_per_gpu", AUTO)
    times = config.get("gradient_accumulation_steps", AUTO)
    if whole not in (AUTO, batch_size):
        yield f"train_batch_size = {whole}, and batch_size is {batch_size}"
    if times not in (AUTO, 1):
        yield f"gradient_accumulation_steps = {times}, and a rank takes its part at once: set 1"
    if part != AUTO and (not isinstance(part, int) or part * world_size != batch_size):
        yield (
            f"train_micro_batch_size_per_gpu = {part}, and batch_size = {batch_size} of "
            f"{world_size} ranks gives each {batch_size / world_size:g}"
        )


def _optimizer(config: Mapping[str, Any], rule: Mapping[str, Any]) -> Iterator[str]:
    """Yield contradictions between the configured optimizer and the arm's, and one for any
    scheduler."""
    if config.get("scheduler"):
        yield "it has a scheduler, and a method takes a constant step size"
    given = config.get("optimizer")
    if given is None:
        return
    kind = given.get("type") if isinstance(given, Mapping) else given
    if not isinstance(kind, str) or kind.lower() != rule["name"]:
        yield f"optimizer.type = {kind}, and the arm's optimizer is {rule['name']}"
        return
    for key, value in (given.get("params") or {}).items():
        if key in rule and value not in (AUTO, rule[key]):
            yield f"optimizer.params.{key} = {value}, and the arm's optimizer has {rule[key]}"
        elif key not in rule:
            yield f"optimizer.params.{key}, which the arm's optimizer does not have"


def _clipping(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a contradiction if the configuration clips gradients."""
    clipping = config.get("gradient_clipping", 0)
    if clipping not in (AUTO, 0):
        yield f"gradient_clipping = {clipping}, and the arm clips nothing: set 0"


def _precision(config: Mapping[str, Any], info: MethodInfo) -> Iterator[str]:
    """Yield contradictions between the configured precision and the method's."""
    for kind in ("fp16", "bf16"):
        table = config.get(kind)
        on = table.get("enabled") if isinstance(table, Mapping) else table
        if on not in (None, AUTO) and bool(on) != (info.precision == kind):
            own = f"method = {info.name} is {info.precision}"
            yield f"{kind}.enabled = {str(on).lower()}, and {own}"


def _sharing(config: Mapping[str, Any], info: MethodInfo) -> Iterator[str]:
    """Yield contradictions between the configured ZeRO stage and the method's."""
    zero = config.get("zero_optimization", {})
    if not isinstance(zero, Mapping):
        yield f"zero_optimization = {zero}, which must be a table"
        return
    stage = zero.get("stage", AUTO)
    if stage not in (AUTO, info.options.get("stage")):
        yield f"zero_optimization.stage = {stage}, and method = {info.name} is stage " + str(
            info.options.get("stage")
        )
    for key in ("offload_optimizer", "offload_param"):
        table, own = zero.get(key), info.options.get(key, "none")
        device = table.get("device", "none") if isinstance(table, Mapping) else "none"
        if table is not None and device != own:
            yield f"zero_optimization.{key}.device = {device}, and method = {info.name} has {own}"
