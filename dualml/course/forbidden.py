"""Names that must not implement a student's class: ready-made solutions, ours and the
frameworks'."""

from __future__ import annotations

#: Modules that no exercise needs: dualml's own, which contain the solutions.
BANNED = ("dualml", "dualml_torch", "dualml_ms")
#: Classes and functions of each framework that do what the student must write.
OPTIMIZERS = (
    "ASGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "LBFGS",
    "Muon",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
    "SparseAdam",
)
FUNCTIONS = (
    "adadelta",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "asgd",
    "nadam",
    "radam",
    "rmsprop",
    "rprop",
    "sgd",
)
MINDSPORE = (
    "ASGD",
    "Ada",
    "AdaFactor",
    "AdaMax",
    "AdaSumByDeltaWeightWrapCell",
    "AdaSumByGradWrapCell",
    "Adagrad",
    "Adam",
    "AdamOffload",
    "AdamWeightDecay",
    "FTRL",
    "LARS",
    "Lamb",
    "LazyAdam",
    "Momentum",
    "ProximalAdagrad",
    "RMSProp",
    "Rprop",
    "SGD",
    "thor",
)
PRIMITIVES = (
    "Adam",
    "AdamNoUpdateParam",
    "AdamWeightDecay",
    "ApplyAdaMax",
    "ApplyAdadelta",
    "ApplyAdagrad",
    "ApplyAdagradDA",
    "ApplyAdagradV2",
    "ApplyAdamWithAmsgrad",
    "ApplyFtrl",
    "ApplyGradientDescent",
    "ApplyMomentum",
    "ApplyPowerSign",
    "ApplyProximalAdagrad",
    "ApplyProximalGradientDescent",
    "ApplyRMSProp",
    "ApplyCenteredRMSProp",
    "FusedSparseAdam",
    "FusedSparseLazyAdam",
    "SGD",
)
COLLECTIVES = ("all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce",
               "all_to_all", "all_to_all_single", "all_to_all_single_with_output_shape",
               "all_to_all_with_output_shape", "barrier", "batch_isend_irecv", "broadcast",
               "gather", "gather_into_tensor", "init_process_group", "irecv", "isend", "new_group",
               "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter",
               "scatter_tensor", "send")  # fmt: skip
OPERATORS = (
    "AllGather",
    "AllReduce",
    "AlltoAll",
    "AlltoAllV",
    "Barrier",
    "Broadcast",
    "CollectiveGather",
    "CollectiveScatter",
    "NeighborExchange",
    "NeighborExchangeV2",
    "Receive",
    "Reduce",
    "ReduceScatter",
    "Send",
)
READY_MADE: dict[str, list[str]] = {
    "torch": [
        *(f"torch.optim.{name}" for name in OPTIMIZERS),
        *(f"torch.optim.{name}.{name}" for name in FUNCTIONS),
        *(f"torch._fused_{name}_" for name in ("adam", "adamw", "sgd", "adagrad")),
        "torch.amp.GradScaler",
        "torch.cuda.amp.GradScaler",
        "torch.distributed.optim.ZeroRedundancyOptimizer",
        "torch.nn.parallel.DistributedDataParallel",
        "torch.utils.data.DistributedSampler",
        "torch.utils.data.distributed.DistributedSampler",
    ],
    "mindspore": [
        *(f"mindspore.nn.{name}" for name in MINDSPORE),
        *(f"mindspore.mint.optim.{name}" for name in ("Adam", "AdamW", "SGD")),
        *(f"mindspore.experimental.optim.{name}" for name in OPTIMIZERS),
        *(f"mindspore.ops.{name}" for name in PRIMITIVES),
        *(f"mindspore.amp.{name}" for name in ("DynamicLossScaler", "StaticLossScaler")),
        "mindspore.nn.DistributedGradReducer",
        "mindspore.dataset.DistributedSampler",
    ],
}
#: The frameworks' own communication, which the given communicator replaces. The communicator
#: depends on it, so that it is only searched for in the text.
COMMUNICATION: dict[str, list[str]] = {
    "torch": [
        f"torch.distributed{inner}.{name}"
        for name in (*COLLECTIVES, "*")
        for inner in ("", ".distributed_c10d", ".nn", ".nn.functional")
    ],
    "mindspore": [
        *(f"mindspore.mint.distributed.{name}" for name in (*COLLECTIVES, "*")),
        *(f"mindspore.communication.comm_func.{name}" for name in (*COLLECTIVES, "*")),
        *(f"mindspore.ops{inner}.{name}" for name in OPERATORS for inner in ("", ".operations")),
    ],
}
#: Modules and functions through which forbidden names are accessible indirectly.
ROUNDABOUT = (
    "importlib",
    "ctypes",
    "inspect",
    "pickle",
    "marshal",
    "subprocess",
    "socket",
    "multiprocessing",
    "cffi",
    "gc",
)
CALLS = ("exec", "eval", "compile", "__import__", "open", "input", "breakpoint")
