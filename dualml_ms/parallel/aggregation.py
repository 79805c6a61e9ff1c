"""One MindSpore update in separate steps: two compiled cells, with flat gradients between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from numpy.typing import NDArray

from dualml.backend import split_into_chunks
from dualml_ms.algorithms.loss_scaling import AllFinite, ScaledGradient, UnscaledUpdate
from dualml_ms.algorithms.training import LossCell, MindSporeTraining
from dualml_ms.common.compiled import CompiledCell

Array = NDArray[Any]
Groups = tuple[tuple[int, ...], ...]


class FlatGradient(nn.Cell):
    """A cell that returns the mean loss, and its gradients times a factor as one flat tensor per
    group of parameters.

    Args:
        groups: for each group the indices of its parameters, from 0.
        scaled: whether the loss is multiplied by the factor, instead of its gradients.
    """

    def __init__(
        self, loss: LossCell, parameters: ms.ParameterTuple, groups: Groups, scaled: bool
    ) -> None:
        super().__init__(auto_prefix=False)
        self.loss, self.groups, self.scaled = loss, groups, scaled
        if scaled:
            self.gradient = ScaledGradient(loss, parameters)
        else:
            self.gradient = ops.value_and_grad(loss, None, parameters)

    def construct(self, factor, x, y, *masks):
        """Return the mean loss of the batch, and one 1-D gradient per group, times ``factor``."""
        if self.scaled:
            loss, gradients = self.gradient(factor, x, y, *masks)
        else:
            loss, gradients = self.gradient(x, y, *masks)
        flat = ()
        for group in self.groups:
            parts = ()
            for i in group:
                parts += (gradients[i].reshape(-1),)
            flat += (ops.cat(parts) if self.scaled else ops.cat(parts) * factor,)
        return loss, flat


class FlatUpdate(nn.Cell):
    """A cell that runs the optimizer on flat gradients; if ``scaled``, the inverse of the loss
    scale is its first argument.

    Args:
        spans: for each parameter the index of its flat gradient, and the start and stop of its
            part.
    """

    def __init__(
        self, optimizer: nn.Optimizer, spans: tuple[tuple[int, int, int], ...], scaled: bool
    ) -> None:
        super().__init__(auto_prefix=False)
        self.spans, self.first = spans, int(scaled)
        self.optimizer = UnscaledUpdate(optimizer) if scaled else optimizer
        self.shapes = tuple(tuple(p.shape) for p in optimizer.parameters)

    def construct(self, *tensors):
        """Make one update with flat gradients, one 1-D tensor per group; with a scaled loss the
        inverse scale comes before them."""
        gradients, flat = (), tensors[self.first :]
        for i, (bucket, start, stop) in enumerate(self.spans):
            gradients += (flat[bucket][start:stop].reshape(self.shapes[i]),)
        return self.optimizer(*tensors[: self.first], gradients)


class FlatParameters(nn.Cell):
    """A cell that returns the parameters as one flat tensor per group."""

    def __init__(self, parameters: ms.ParameterTuple, groups: Groups) -> None:
        super().__init__(auto_prefix=False)
        self.parameters, self.groups = parameters, groups

    def construct(self):
        """Return the parameters as one new 1-D tensor per group."""
        flat = ()
        for group in self.groups:
            parts = ()
            for i in group:
                parts += (self.parameters[i].reshape(-1),)
            flat += (ops.cat(parts),)
        return flat


class FlatAssign(nn.Cell):
    """A cell that sets the parameters from flat tensors, by ``spans`` as in `FlatUpdate`."""

    def __init__(
        self, parameters: ms.ParameterTuple, spans: tuple[tuple[int, int, int], ...]
    ) -> None:
        super().__init__(auto_prefix=False)
        self.parameters, self.spans = parameters, spans
        self.shapes = tuple(tuple(p.shape) for p in parameters)

    def construct(self, *flat):
        """Overwrite the parameters with ``flat``, one 1-D tensor per group; return a scalar that
        depends on it."""
        done = True
        for i, (bucket, start, stop) in enumerate(self.spans):
            value = flat[bucket][start:stop].reshape(self.shapes[i])
            done = ops.depend(done, ops.assign(self.parameters[i], value))
        return done


class MindSporeGradientBuckets:
    """MindSpore implementation of `dualml.backend.capability.GradientBuckets`: gradients of a
    training as flat buffers (buckets), each with the parameters named in an entry of ``layout``."""

    def __init__(self, training: MindSporeTraining, layout: Sequence[Sequence[str]]) -> None:
        self.training, self.layout = training, layout
        own = training.parameters
        self.sizes = {name: math.prod(p.shape) for name, p in own.items()}
        position = {name: i for i, name in enumerate(own)}
        groups = tuple(tuple(position[n] for n in names) for names in layout)
        spans = []
        for bucket, names in enumerate(layout):
            stop = 0
            for name in names:
                start, stop = stop, stop + self.sizes[name]
                spans.append((bucket, start, stop))
        parameters = ms.ParameterTuple(own.values())
        scaled = training.scaler is not None
        self._gradient = CompiledCell(FlatGradient(training.mean_loss, parameters, groups, scaled))
        self._update = CompiledCell(FlatUpdate(training.optimizer, tuple(spans), scaled))
        self._finite = CompiledCell(AllFinite())
        self._parameters = CompiledCell(FlatParameters(parameters, groups))
        self._assign = CompiledCell(FlatAssign(parameters, tuple(spans)))

    def gradient_factor(self, value: float) -> ms.Tensor:
        """Return ``value`` times the current loss scale as a float32 scalar tensor."""
        factor: ms.Tensor = self.training.scalar(value * self.training.loss_scale)
        return factor

    def gradient(
        self, batch: Array, factor: float
    ) -> tuple[list[tuple[ms.Tensor, float]] | None, list[ms.Tensor]]:
        """Return the lazy mean loss and the share of each chunk of the samples ``batch``, and their
        gradient times ``factor`` and the loss scale, which `update` divides out again, one 1-D
        tensor per bucket; nothing is sent. For an empty batch: None, and zeros."""
        if not len(batch):
            sums = [sum(self.sizes[n] for n in names) for names in self.layout]
            return None, [ms.Tensor(np.zeros(n, np.float32)) for n in sums]
        losses, total = [], []
        for part, share in split_into_chunks(batch, self.training.recipe.chunk):
            scale, given = self.gradient_factor(share * factor), self.training.batch_tensors(part)
            loss, flat = self._gradient(scale, *given)
            losses.append((loss, share))
            total = [ops.add(a, b) for a, b in zip(total, flat, strict=True)] if total else flat
        return losses, list(total)

    def update(self, gradients: Sequence[ms.Tensor], step: int) -> None:
        """Make update ``step`` with these gradients, one 1-D tensor per bucket, divided by the loss
        scale; a loss scaler skips it if one is not finite."""
        self.training.update(step, self._finite, self._update, *gradients)
        self.training.step_count = step

    def parameters(self) -> list[ms.Tensor]:
        """Return copies of the parameters, one 1-D tensor per bucket."""
        return list(self._parameters())

    def assign(self, parameters: Sequence[ms.Tensor]) -> None:
        """Overwrite the parameters with these 1-D tensors, one per bucket."""
        self._assign(*parameters)

    def bucket_bytes(self) -> int:
        """Return the bytes of the gradients in all buckets together."""
        return sum(self.training.parameters[n].nbytes for names in self.layout for n in names)

    def unflatten(self, tensors: Sequence[ms.Tensor]) -> dict[str, Array]:
        """Split 1-D tensors, one per bucket, into canonical name → array of the parameter's shape,
        copied."""
        own, arrays = self.training.parameters, {}
        for names, tensor in zip(self.layout, tensors, strict=True):
            ends = np.cumsum([self.sizes[n] for n in names])
            for name, part in zip(names, np.split(tensor.asnumpy(), ends[:-1]), strict=True):
                arrays[name] = part.reshape(own[name].shape).copy()
        return {name: arrays[name] for name in own}
