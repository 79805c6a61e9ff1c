"""Reasons why a kind of arm does not have a setting, or not all of its values: texts of errors.

``{value}`` is the value, and the name of another setting is that setting's value.
"""

from __future__ import annotations

from dualml.experiment.methods.config import explain_no_config

COMBINES = (
    "split is for training, and combines the ranks itself; leave out kind, partition and "
    "aggregation"
)
ENGINE = "a method makes the updates itself; leave out kind, split and aggregation"
CONFIG = explain_no_config("")
ZERO = "zero = {value} is for training by dualml's own updates; leave out "
OFFLOAD = "offload is for training a whole model by dualml's own updates; leave out "
NO_REPLICAS = "zero shards an update that replicas make together; leave out "
TRAINER_LOSS_SCALE = (
    "loss_scale: the server updates with every trainer's own gradient, and would skip some of a "
    "batch and not others; use precision = bf16 without loss_scale, or update_mode = synchronous"
)
RANK_LOSS_SCALE = (
    "loss_scale: here ranks update with gradients of their own, and would each skip other "
    "updates; use precision = bf16 without loss_scale, or an aggregation of gradients"
)
#: Settings of ZeRO where ``zero`` is 0 → reason.
UNSHARDED = {
    "zero_reduce": "zero_reduce = {value} says how sharded gradients come together; set zero = 1, "
    "2 or 3, or leave it out",
    "zero_lower": "zero_param_dtype = precision keeps float32 weights on the rank that updates "
    "them alone; set zero = 1, 2 or 3, or leave it out",
}
