"""What a run uses of its machines: each rank looks at itself as it runs, and people look on.

`dualml.usage.sampler` is the rank's side, `dualml.report.at_work` what ``dualml top`` shows.
"""
