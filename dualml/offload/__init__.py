"""Offload: an optimizer's state, and the weights, kept in host memory or on disk.

The device has one unit (`dualml.zero.Unit`) of them at a time: it is brought in, used or updated,
and what has changed is written back. It goes with one rank, and with ranks that share out a model.

Sources: Ren et al. 2021, "ZeRO-Offload: Democratizing Billion-Scale Model Training", USENIX ATC;
Rajbhandari et al. 2021, "ZeRO-Infinity: Breaking the GPU Memory Wall for Extreme Scale Deep
Learning", SC21. The first updates where the state lies, on the CPU; here, as with the second's
state on disk, it is streamed through the memory of whoever updates.
"""

from dualml.offload.settings import Offload as Offload
