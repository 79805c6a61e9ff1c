"""One process in which MindSpore's `Model` owns the loop, and a callback receives the losses."""

from mindspore.dataset import GeneratorDataset
from mindspore.train import Callback, Model

from dualml_ms.experiment.methods.base import MethodContext, TrainingMethod


class Losses(Callback):
    """A callback that collects the losses."""

    def __init__(self):
        self.values = []

    def on_train_step_end(self, run_context):
        """Append the loss of the step that has ended to ``values``."""
        self.values.append(run_context.original_args().net_outputs)


class Method(TrainingMethod):
    takes_masks = False

    def __init__(self, context: MethodContext) -> None:
        super().__init__()
        self.model = context.model
        self.optimizer = context.optimizer(self.model.trainable_params())
        self.criterion = context.criterion
        self.trainer = Model(self.model, self.criterion, self.optimizer)

    def run_steps(self, batches):
        """Make an update for each batch, samples and labels, by one epoch of `Model.train`; return
        their mean losses."""
        losses = Losses()
        data = GeneratorDataset(batches, ["x", "y"], shuffle=False, num_parallel_workers=1)
        self.trainer.train(1, data, callbacks=[losses], dataset_sink_mode=False)
        return losses.values
