"""Usage of the machine: processor load, memory, power and temperature."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

RAPL = Path("/sys/class/powercap")
#: Linux' names of the processors' sensors, the best first.
SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "acpitz")


class MachineSampler:
    """Samples the machine; rates are averages since the previous sample."""

    def __init__(self) -> None:
        import psutil

        self.cores = psutil.cpu_count() or 1
        self._before = self._cpu()
        self._energy = read_energy()
        self._at = time.monotonic()

    def sample(self) -> dict[str, float | int | None]:
        """Return ``cores`` (logical), ``busy`` (cores' worth of work by all processes), ``used``
        (bytes of memory), and ``power`` (W) and ``temperature`` (°C) of the processors alone; None
        for what is unknown."""
        import psutil

        before, self._before = self._before, self._cpu()
        whole = self._before[1] - before[1]
        busy = self.cores * (self._before[0] - before[0]) / whole if whole > 0 else None
        memory = psutil.virtual_memory()
        return {
            "cores": self.cores,
            "busy": busy if busy is None else min(max(busy, 0.0), self.cores),
            "used": int(memory.total - memory.available),
            "power": self._power(),
            "temperature": read_temperature(),
        }

    @staticmethod
    def _cpu() -> tuple[float, float]:
        """Return the processor seconds that all cores spent working since the machine started, and
        all their seconds, idle ones included."""
        import psutil

        times = psutil.cpu_times()
        guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # within user
        whole = sum(times) - guests
        return whole - times.idle - getattr(times, "iowait", 0.0), whole

    def _power(self) -> float | None:
        """Return the processors' mean power in watts since the previous sample; None where the
        counters are not readable, as for most users of Linux, or were reset."""
        before, self._energy = self._energy, read_energy()
        begin, self._at = self._at, time.monotonic()
        seconds = self._at - begin
        if not before or before.keys() != self._energy.keys() or seconds <= 0:
            return None
        joules = 1e-6 * sum(self._energy[name] - before[name] for name in before)
        return joules / seconds if joules >= 0 else None


def read_energy() -> Mapping[str, int]:
    """Return the energy of each processor package so far, in microjoules (Intel's and AMD's RAPL);
    empty where it is not readable."""
    microjoules = {}
    try:
        for package in RAPL.glob("intel-rapl:[0-9]*"):
            if package.name.count(":") == 1:  # the parts of a package are within it
                microjoules[package.name] = int((package / "energy_uj").read_text())
    except (OSError, ValueError):
        return {}
    return microjoules


def read_temperature() -> float | None:
    """Return the temperature in °C of the hottest sensor of the first of `SENSORS` that the machine
    has; None where there is none."""
    import psutil

    try:
        sensors = psutil.sensors_temperatures()
    except (AttributeError, OSError):  # not on this system
        return None
    for name in SENSORS:
        if known := [sensor.current for sensor in sensors.get(name, []) if sensor.current]:
            return float(max(known))
    return None
