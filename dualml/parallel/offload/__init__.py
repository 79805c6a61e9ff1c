"""Offloading: optimizer state, and optionally the weights, kept in host memory or on disk.

The device holds one unit (`dualml.parallel.zero.Unit`) of them at a time: it is copied in, used or
updated, and written back if it changed. Offloading works on one rank and with ranks that shard a
model.

Sources: Ren et al. 2021, "ZeRO-Offload: Democratizing Billion-Scale Model Training", USENIX ATC;
Rajbhandari et al. 2021, "ZeRO-Infinity: Breaking the GPU Memory Wall for Extreme Scale Deep
Learning", SC21. ZeRO-Offload updates on the CPU, where the state is; here, as with ZeRO-Infinity's
state on disk, the state is streamed through the memory of the device that updates.
"""

from dualml.parallel.offload.settings import Offload as Offload
