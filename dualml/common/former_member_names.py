"""Names that members of public classes had in version 0.1, and what they are called now.

`dualml.common.former_members` lets the classes answer to them.
"""

from __future__ import annotations

from collections.abc import Mapping

_RECORDER = {
    "hooked": "hook_modules",
    "like": "tensor_like",
    "named": "named_tensors",
    "named_gradients": "gradients_by_name",
    "slots": "optimizer_state",
    "tape_of_step": "make_tape",
    "watching": "watch_operations",
}

_STORE = {"post": "set", "read": "get"}

#: Class → former name → present name. Subclasses inherit the entries.
FORMER_MEMBERS: Mapping[str, Mapping[str, str]] = {
    "dualml.algorithms.communicator.base.Communicator": {"per_machine": "ranks_per_machine"},
    "dualml.algorithms.communicator.engine.CommEngine": {
        "how": "implementation_of",
        "place": "context",
        "sent": "count_sent_bytes",
    },
    "dualml.algorithms.communicator.rendezvous.FileStore": _STORE,
    "dualml.algorithms.communicator.rendezvous.MemoryStore": _STORE,
    "dualml.algorithms.communicator.rendezvous.RankContext": {"board": "store"},
    "dualml.algorithms.model.spec.ModelSpec": {
        "blocks": "residual_blocks",
        "depth": "open_branches",
        "dropouts": "dropout_names",
        "padded": "needs_padding_mask",
        "stacks": "stack_shapes",
        "tokens": "takes_tokens",
    },
    "dualml.algorithms.optim.base.OptimizerSpec": {"one": "update_param", "slots": "state_keys"},
    "dualml.backend.capability.SupportsCapabilities": {
        "ability": "require_capability",
        "lacks": "missing_reasons",
    },
    "dualml.backend.training.Backend": {"read": "materialize_losses"},
    "dualml.backend.training.Training": {
        "accepts": "should_step",
        "learned": "trainable_weights",
        "made": "applied_steps",
        "move": "transform_weights",
        "now": "step_count",
        "rescale": "pop_scaler_state",
        "scale": "loss_scale",
        "scaling": "scaler_state",
        "stretch": "run_steps",
        "unscaled": "unscale_gradients",
    },
    "dualml.backend.training_spec.TrainingSpec": {
        "hidden": "make_hidden_states",
        "rate": "learning_rate",
        "rates": "learning_rates",
        "state": "initial_state",
    },
    "dualml.parallel.aggregation.base.Strategy": {
        "busiest": "max_rank_volume",
        "closed": "has_closed_form",
        "counted": "is_point_to_point",
        "on_layers": "for_layers",
        "on_nodes": "for_nodes",
        "stages": "step_groups",
        "textbook": "reference_algorithm",
    },
    "dualml.parallel.aggregation.hierarchical.Hierarchical": {"inside": "ranks_on_node"},
    "dualml.parallel.aggregation.schedule.CollectiveSchedule": {
        "received": "received_volume",
        "sent": "sent_volume",
    },
    "dualml.parallel.aggregation.schedule.Transfer": {"then": "op"},
    "dualml.parallel.aggregation.straggler.Straggler": {
        "computing": "compute_delay",
        "transferring": "transfer_delay",
    },
    "dualml.parallel.partition.base.Partition": {
        "deal": "partition",
        "lists": "ordered_indices",
        "own": "assign",
        "promise": "guarantees",
        "redeals": "repartitions_each_epoch",
    },
    "dualml.parallel.partition.dirichlet.DirichletPartition": {"feasible": "draw_feasible_sizes"},
    "dualml.parallel.partition.random_sampling.RandomSampling": {"missed": "expected_missed_share"},
    "dualml.parallel.split.plan.SplitPlan": {
        "between": "activation_shape",
        "boundary": "activation_numel",
        "lower": "sends_low_precision",
        "micro": "micro_batch_sizes",
        "tied": "tied_params",
        "views": "rank_stages",
    },
    "dualml.parallel.split.training.SplitTraining": {
        "array": "tensor_to_host",
        "carried": "carried_state",
        "count_kept": "count_saved_bytes",
        "does": "description",
        "each_loss": "micro_batch_losses",
        "given": "fetch_batch",
        "held": "precision_policy",
        "look": "capture_forward",
        "memory": "measure_memory",
        "names": "layer_names",
        "read": "materialize_losses",
        "splits": "sliced_outputs",
        "together": "assemble",
    },
    "dualml.parallel.zero.settings.Sharding": {"rooms": "buffer_slots"},
    "dualml.parallel.zero.units.Unit": {"named": "unflatten", "vector": "flatten"},
    "dualml.parity.models.recorder.Recorder": {
        "again": "repeat_step",
        "answered": "output_seen",
        "begin": "begin_step",
        "calls": "trace_forward",
        "differing": "find_nondeterminism",
        "done": "is_done",
        "draw": "run_draw",
        "drawn": "draw_states",
        "keep": "store_step",
        "moved": "perturb_input",
        "noting": "record_arrays",
        "now": "step_arrays",
    },
    "dualml.planning.cost.model.Point": {"of": "from_measurement"},
    "dualml.planning.cost.topology.Topology": {"across": "crosses_nodes"},
    "dualml.runner.checkpoint.slices.Slice": {"whole": "full"},
    "dualml.runner.checkpoint.stored_checkpoint.Checkpoint": {
        "below": "with_prefix",
        "match": "check_model",
    },
    "dualml_ms.algorithms.communicator.MindSporeCommunicator": {"whole": "is_world"},
    "dualml_ms.algorithms.optim.base.RuleOptimizer": {"unit": "state_unit"},
    "dualml_ms.parity.recorder.Recorder": {**_RECORDER, "all_parameters": "unique_parameters"},
    "dualml_torch.algorithms.communicator.TorchCommunicator": {"whole": "is_world"},
    "dualml_torch.algorithms.optim.base.RuleOptimizer": {"rule_of": "spec_of_group"},
    "dualml_torch.parity.recorder.Recorder": {
        **_RECORDER,
        "trained": "trainable_parameters",
        "watch": "make_tracer",
    },
}

#: Class → method that subclasses override → former name of a keyword → present name.
FORMER_KEYWORDS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "dualml_torch.algorithms.optim.base.RuleOptimizer": {"update": {"room": "workspace"}},
}
