"""Usage of GPUs and NPUs from their vendors' tools: NVIDIA's library NVML, Huawei's npu-smi.

https://docs.nvidia.com/deploy/nvml-api/ ; the Ascend documentation of ``npu-smi info``.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from typing import Any

from dualml.common.machine import run_bounded
from dualml.experiment.store.usage import DeviceSample

#: Samples a device; returns None if it cannot.
SampleDevice = Callable[[], DeviceSample | None]
#: Each chip has two rows of three cells in ``npu-smi info``: ``NPU NAME``, health, ``W °C pages``;
#: then ``CHIP [PHYSICAL]``, bus, ``AICORE% USED/MB USED/MB`` of memory and HBM, which it may lack.
NPU_ROW = re.compile(r"^\|\s*(\d+)\s+(\S+)\s*\|[^|]*\|\s*(\S+)\s+(\S+)\s[^|]*\|\s*$")
CHIP_ROW = re.compile(
    r"^\|\s*(\d+)(?:\s+(\d+))?\s*\|[^|]*\|\s*(\S+)\s+(\d+)\s*/\s*(\d+)(?:\s+(\d+)\s*/\s*(\d+))?\s*\|\s*$"
)
NPU_SMI_S = 10.0


def device_sampler(device: str) -> SampleDevice | None:
    """Return a function that samples a device (``gpu:0``, ``ascend:1``); None for other devices,
    such as the CPU, and without a driver for GPUs. The function returns None where it cannot
    sample, as for an NPU without its tool."""
    kind, _, index = device.partition(":")
    if kind in ("cuda", "gpu"):
        return nvidia_sampler(int(index or 0))
    if kind in ("npu", "ascend"):
        return lambda: sample_npu(int(index or 0))
    return None


def nvidia_sampler(index: int) -> SampleDevice | None:
    """Return a function that samples this process's ``cuda:INDEX`` by NVML; None without its
    package, a driver or such a device. Memory and load are those of the whole device."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = _handle(pynvml, visible_device("CUDA_VISIBLE_DEVICES", index))
        name = pynvml.nvmlDeviceGetName(handle)
    except Exception:  # no package, no driver, no such device: it is only watched
        return None

    def sample() -> DeviceSample:
        """Sample the device; quantities that it does not report are left out."""
        values: dict[str, Any] = {}
        # A quantity that the device does not report is left out: each query fails by itself.
        with contextlib.suppress(pynvml.NVMLError):
            values["utilisation"] = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
        with contextlib.suppress(pynvml.NVMLError):
            values["memory"] = int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
        with contextlib.suppress(pynvml.NVMLError):
            values["power"] = pynvml.nvmlDeviceGetPowerUsage(handle) / 1000
        with contextlib.suppress(pynvml.NVMLError):
            sensor = pynvml.NVML_TEMPERATURE_GPU
            values["temperature"] = pynvml.nvmlDeviceGetTemperature(handle, sensor)
        return DeviceSample(name=name if isinstance(name, str) else name.decode(), **values)

    return sample


def _handle(pynvml: Any, which: str) -> Any:
    """Return NVML's handle of a device, by index or UUID."""
    if which.isdecimal():
        return pynvml.nvmlDeviceGetHandleByIndex(int(which))
    return pynvml.nvmlDeviceGetHandleByUUID(which)


def visible_device(variable: str, index: int) -> str:
    """Return the machine-wide name of this process's device ``index``, an index or a UUID, from the
    list in the environment variable; ``index`` itself if the list is shorter."""
    names = [name.strip() for name in os.environ.get(variable, "").split(",") if name.strip()]
    return names[index] if index < len(names) else str(index)


def sample_npu(index: int) -> DeviceSample | None:
    """Sample this process's ``ascend:INDEX`` by npu-smi; None if that is missing, fails, or does
    not list the device."""
    try:
        printed = run_bounded(["npu-smi", "info"], NPU_SMI_S)
    except OSError:
        return None
    which = int(visible_device("ASCEND_RT_VISIBLE_DEVICES", index))
    return parse_npu_smi(printed.out).get(which) if printed.code == 0 else None


def parse_npu_smi(text: str) -> dict[int, DeviceSample]:
    """Parse the output of ``npu-smi info``: device number → sample.

    Devices are numbered as the system does: by the physical number, where chips have one, else in
    the order of the table.
    """
    devices: dict[int, DeviceSample] = {}
    head: re.Match[str] | None = None
    for row in text.splitlines():
        second = CHIP_ROW.match(row) if head else None
        if head and second:
            index = int(second[2]) if second[2] else len(devices)
            memory, whole, hbm, of_hbm = (int(part or 0) for part in second.groups()[3:])
            used = hbm if of_hbm else memory if whole else 0
            share = parse_number(second[3])
            devices[index] = DeviceSample(
                name=head[2],
                utilisation=None if share is None else share / 100,
                memory=used * 2**20,
                power=parse_number(head[3]),
                temperature=parse_number(head[4]),
            )
            head = None
        else:
            head = NPU_ROW.match(row)
    return devices


def parse_number(cell: str) -> float | None:
    """Parse a number from a tool's output; None for any other text."""
    try:
        return float(cell)
    except ValueError:
        return None
