"""How to lay a language model out on many devices: bytes and seconds of layouts, by formulas.

`shape` is a model, `cluster` the devices, `layouts` what may be chosen; `memory` and `seconds`
price many layouts at once, `search` ranks them; `published` and `fitting` hold them against
published runs.
"""
