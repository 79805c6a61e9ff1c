"""The request of `dualml plan`, read from its options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dualml.algorithms.model.gpt import DECODERS
from dualml.common.errors import UserError
from dualml.common.json_types import JsonMapping
from dualml.planning.cost import units
from dualml.planning.cost.link import Link
from dualml.planning.planner.alternatives import MESH
from dualml.planning.planner.axes import complete_axes, parse_axes, parse_choices
from dualml.planning.planner.cluster import Cluster, Efficiency
from dualml.planning.planner.defaults import SoftwareDefaults, software_defaults
from dualml.planning.planner.devices import Device, fitted_efficiency
from dualml.planning.planner.devices import find_device as find_device
from dualml.planning.planner.engine import DUALML, ENGINES, MEGATRON, TrainingEngine
from dualml.planning.planner.models import find_model
from dualml.planning.planner.pins import widen_space
from dualml.planning.planner.plan_request import ATTENTION, PlanRequest
from dualml.planning.planner.rules import check_layout
from dualml.planning.planner.shape import Shape
from dualml.planning.planner.software import find_software
from dualml.planning.planner.space import SearchSpace, divisors
from dualml.planning.planner.zoo import spec_from_shape

#: Default tokens per update if neither the model nor the user gives them: those of the language
#: models of 2020 to 2023 (Brown et al. 2020, table 2.1; Touvron et al. 2023, table 2).
TOKENS = 4 * 2**20
#: Latency α of a message inside a node and between nodes. Messages of training are so large
#: that it hardly matters, except for ZeRO-3 on a thousand devices.
INSIDE_S, BETWEEN_S = 5e-6, 20e-6
MAX_BATCH = 10**9
#: Default number of devices.
DEVICES = 8


def make_cluster(
    device: Device,
    devices: int,
    precision: str,
    given: Efficiency | None = None,
    software: str = MEGATRON.name,
) -> Cluster:
    """Make a cluster of devices with their data-sheet and measured values, default latencies, the
    overlap of the named ``software``, and the fitted efficiency unless another is ``given``.

    Raises:
        UserError: the device has no published peak in this precision.
    """
    if precision not in device.peaks:
        raise UserError(
            f"{device.name} has no published peak for --precision {precision}; choose "
            f"{' or '.join(device.peaks)}, or another device"
        )
    found = find_software(software)
    return Cluster(
        devices,
        device.node,
        float(device.memory),
        device.peaks[precision],
        device.bandwidth,
        Link(INSIDE_S, 1 / device.bus),
        Link(BETWEEN_S, 1 / device.between),
        given or fitted_efficiency(),
        found.overlap,
        device.chip(precision),
        found,
        device.sums,
    )


def request_from_options(model: str, options: JsonMapping) -> PlanRequest:
    """Make the request from the options of `dualml plan`, name → value; None means the default: the
    device's own value, all layouts, or for ``batch`` `default_batch`.

    Raises:
        UserError: an invalid option.
    """
    shape = find_model(model, options["sequence"], options["overrides"] or ())
    engine = _engine(shape, options["engine"])
    defaults = software_defaults(engine.name)
    device = find_device(options["device"])
    precision = options["precision"]
    if precision not in engine.precisions:
        raise UserError(
            f"--precision of {engine.name} is {' or '.join(engine.precisions)}; received "
            f"{precision!r}"
        )
    attention = options["attention"] or ATTENTION[defaults.fused]
    if attention not in ATTENTION:
        raise UserError(f"--attention is {' or '.join(ATTENTION)}; received {attention!r}")
    layout, pins = _layout(options), _pins(options)
    devices = _devices(options, layout)
    cluster = _cluster(device, devices, precision, engine.name, options)
    batch = options["batch"]
    chosen = _default_batch(shape, devices, layout) if batch is None else batch
    if not 1 <= chosen <= MAX_BATCH:
        raise UserError(f"--batch is from 1 to {MAX_BATCH:,}; received {chosen:,}")
    if layout is not None:
        check_layout(shape, layout, chosen, engine, "--layout")
    return PlanRequest(
        shape,
        cluster,
        precision,
        chosen,
        batch is not None,
        attention == "fused" or engine.fused,
        device.name,
        widen_space(_choices(cluster, defaults, engine, options), pins, shape),
        engine,
        layout,
        pins,
        _reserve(options),
    )


def _layout(options: JsonMapping) -> dict[str, Any] | None:
    """Return all axes of the layout of ``--layout``, or None without it. Raise `UserError` if
    ``--pin`` is given, too, or the number of devices is not the product of its axes."""
    text = options.get("layout")
    if text is None:
        return None
    if options.get("pin") is not None:
        raise UserError("--layout names every axis, --pin some of a search; take one of them")
    return complete_axes(parse_axes(text, "--layout"), options["devices"])


def _pins(options: JsonMapping) -> dict[str, Any]:
    """Return the axes of ``--pin``; empty without it."""
    text = options.get("pin")
    return {} if text is None else parse_axes(text, "--pin")


def _devices(options: JsonMapping, layout: Mapping[str, Any] | None) -> int:
    """Return the number of devices: given, the product of the layout's axes, or `DEVICES`."""
    if options["devices"] is not None:
        return int(options["devices"])
    return DEVICES if layout is None else int(math.prod(layout[axis] for axis in MESH))


def _default_batch(shape: Shape, devices: int, layout: Mapping[str, Any] | None) -> int:
    """Return `default_batch`; if ``layout`` is given, rounded so that its replicas, micro-batches
    and interleaved stages divide it."""
    batch = default_batch(shape, devices)
    if layout is None:
        return batch
    woven = layout["pp"] if layout["chunks"] > 1 else 1
    each = int(layout["dp"] * layout["micro"] * woven)
    return max(1, round(batch / each)) * each


def _engine(shape: Shape, name: str | None) -> TrainingEngine:
    """Return the engine of this name; None: dualml for its own models, else Megatron-LM.

    Raises:
        UserError: an unknown engine, or dualml for a model that it does not have.
    """
    if name is None:
        return DUALML if shape.name in DECODERS else MEGATRON
    if name not in ENGINES:
        raise UserError(f"--engine is {' or '.join(ENGINES)}; received {name!r}")
    if ENGINES[name] is DUALML:
        spec_from_shape(shape)
    return ENGINES[name]


def default_batch(shape: Shape, devices: int) -> int:
    """Return the default number of sequences per update: the model's published batch, or as many as
    make 4 · 2²⁰ tokens, rounded so that the number of devices divides it or is divided by it, which
    allows many replicas."""
    wanted = shape.batch or max(1, round(TOKENS / shape.sequence))
    if wanted >= devices:
        return round(wanted / devices) * devices
    return min(divisors(devices), key=lambda n: (abs(n - wanted), n))


def _reserve(options: JsonMapping) -> float:
    """Return the bytes of ``--reserve``; 0 without it."""
    text = options["reserve"]
    return 0.0 if text is None else float(units.parse_bytes(text, "--reserve"))


def _cluster(
    device: Device,
    devices: int,
    precision: str,
    software: str,
    options: JsonMapping,
) -> Cluster:
    """Return the cluster of the device with the values that the options replace; ``--reserve`` is
    subtracted from its memory. Raise `UserError` for a value that cannot be parsed or leaves no
    memory."""
    made = make_cluster(device, devices, precision, software=software)
    given: dict[str, Any] = {}
    if options["memory"] is not None:
        given["memory"] = float(units.parse_bytes(options["memory"], "--memory"))
    if options["reserve"] is not None:
        given["memory"] = given.get("memory", made.memory) - _reserve(options)
        if given["memory"] <= 0:
            raise UserError(f"--reserve {options['reserve']} leaves nothing of the device's memory")
    if options["peak"] is not None:
        given["peak"] = units.parse_flops(options["peak"], "--peak")
    if options["hbm"] is not None:
        given["bandwidth"] = _rate(options["hbm"], "--hbm")
    if options["node"] is not None:
        given["node"] = options["node"]
    for key, name in (("inside", "inside"), ("between", "link")):
        link = getattr(made, key)
        if options[name] is not None:
            link = replace(link, beta_s_per_byte=1 / _rate(options[name], f"--{name}"))
        if key == "between" and options["alpha"] is not None:
            link = replace(link, alpha_s=units.parse_seconds(options["alpha"], "--alpha"))
        given[key] = link
    if options["efficiency"] is not None:
        given["reached"] = replace(made.reached, products=options["efficiency"])
    overlap = options["overlap"]
    return replace(made, overlap=made.overlap if overlap is None else overlap, **given)


def _rate(text: str, name: str) -> float:
    """Parse a bandwidth in bytes per second; ``400Gbit`` means ``400Gbit/s``. ``name`` is the
    option in errors."""
    return units.parse_rate(text if text.endswith("/s") else f"{text}/s", name)


def _choices(
    cluster: Cluster, defaults: SoftwareDefaults, engine: TrainingEngine, options: JsonMapping
) -> SearchSpace:
    """Return the search space as the options restrict it; by default tensor parallelism stays
    within a node. Raise `UserError` for a value out of range."""
    for name in ("tensor", "context", "interleave"):
        if options[name] is not None and not 1 <= options[name] <= 10**6:
            raise UserError(f"--{name} is from 1 to 1,000,000; received {options[name]}")
    zero = parse_choices(options["zero"], [str(stage) for stage in range(4)], "--zero")
    again = parse_choices(options["recompute"], engine.recomputed, "--recompute")
    return SearchSpace(
        tensor=cluster.node if options["tensor"] is None else options["tensor"],
        context=options["context"],
        chunks=defaults.max_chunks if options["interleave"] is None else options["interleave"],
        zero=tuple(map(int, zero)),
        recompute=again,
    )
