"""Resource usage of a run: each rank samples itself while it runs.

`dualml.launch.usage.sampler` is the rank's side, `dualml.report.live_usage` shows the samples
(``dualml top``).
"""
