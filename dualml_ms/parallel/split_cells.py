"""The compiled cells of a split model: tensors are passed and returned one by one, the top last."""

from __future__ import annotations

import math
from dataclasses import replace

import mindspore as ms
from mindspore import nn, ops
from mindspore.ops.operations._grad_ops import ReluGrad, TanhGrad

from dualml.algorithms.precision import Stack
from dualml_ms.algorithms.model.network import BRANCH, CARRY, DROPOUT, MERGE, LayerBlock, ModelPart
from dualml_ms.algorithms.model.recurrent import RecurrentOutputs
from dualml_ms.parallel.split_tape import RELU, TANH, SegmentTape, layer_range


class Forward(nn.Cell):
    """A cell that returns the stack after a segment, then the values from inside the segment that
    its ``tape`` saves for the backward pass, then the final states of stateful layers."""

    def __init__(self, part: ModelPart, tape: SegmentTape) -> None:
        super().__init__(auto_prefix=False)
        self.part = part
        self.inner = tuple(at for at in tape.kept if 0 < at < len(part.order))

    def construct(self, *arguments):
        """Return, in one tuple: the stack after the segment, the saved values from inside it, the
        final states. Arguments: the values of the stack before it, then masks and initial states in
        layer order."""
        part = self.part
        after, states = part.walk_with_states(arguments[: part.depth], arguments[part.depth :])
        outputs = after[-1]
        for at in self.inner:
            outputs += (after[at][-1],)
        return outputs + states


class LayerWithCasts(nn.Cell):
    """Layer ``i`` of a part in low precision, with its casts to and from the low-precision type."""

    def __init__(self, part: ModelPart, i: int) -> None:
        super().__init__(auto_prefix=False)
        self.cell, self.lower = part.order[i], part.low_cast
        self.casts, self.widens, self.after = part.casts[i], part.widens[i], part.after[i]

    def construct(self, x):
        """Return the layer's output for ``x``, with its casts before and after."""
        if self.casts:
            x = self.lower(x)
        elif self.widens:
            x = x.astype(ms.float32)
        x = self.cell(x)
        if self.after:
            x = self.lower(x)
        return x


class Backward(nn.Cell):
    """A cell that adds the gradients of a segment to the sums; it returns those of the stack before
    it if ``wanted``.

    It goes layer by layer from the values that the forward pass saved (``tape``): only what a
    layer's own derivative needs is computed again, and the spans of layers that are to be
    recomputed, once their gradient is known. Arguments: the saved values, the masks and initial
    states, the gradients of the stack after the segment.

    In low precision a gradient has the type of its value.
    """

    def __init__(
        self, part: ModelPart, sums: ms.ParameterTuple, tape: SegmentTape, wanted: bool
    ) -> None:
        super().__init__(auto_prefix=False)
        self.part, self.sums, self.wanted, self.first = part, sums, wanted, tape.first
        lower, n = part.low_cast is not None, len(part.order)
        self.order = tuple(
            LayerWithCasts(part, i) if lower else self.differentiated_cell(part, i)
            for i in range(n)
        )
        self.lower = part.low_cast if lower else None
        self.before = tuple(held.before for held in part.precisions) if lower else (False,) * n
        self.after = tuple(held.after for held in part.precisions) if lower else (False,) * n
        self.branch = tuple(held.branch for held in part.precisions) if lower else (False,) * n
        self.layer_parameters = tuple(
            ms.ParameterTuple(cell.trainable_params()) for cell in part.order
        )
        names = list(part.canonical())  # in the order of the sums
        self.sum_indices = tuple(
            tuple(names.index(p.name) for p in own) for own in self.layer_parameters
        )
        self.kept, self.top_numbers, self.slopes = (
            len(tape.kept),
            tuple(tape.top_numbers),
            tape.slopes,
        )
        self.place = tuple(tape.kept.index(at) if at in tape.kept else 0 for at in tape.top_numbers)
        self.plan_recomputation(part, tape)
        self.tanh, self.relu = TanhGrad(), ReluGrad()
        self.inputs = ops.GradOperation(sens_param=True)
        self.weights = ops.GradOperation(get_by_list=True, sens_param=True)
        self.both = ops.GradOperation(get_all=True, get_by_list=True, sens_param=True)

    @staticmethod
    def differentiated_cell(part: ModelPart, i: int) -> nn.Cell:
        """Return the cell of layer ``i`` for the backward pass: one that returns outputs alone if
        the layer is given a carried state, else the layer's own."""
        carry = part.kinds[i] == CARRY and part.dropouts > 0
        return RecurrentOutputs(part.order[i]) if carry else part.order[i]

    def plan_recomputation(self, part: ModelPart, tape: SegmentTape) -> None:
        """Set for each layer ``recomputed_span``, the number of the span to recompute that ends
        with it (−1: none), and ``inside``, the place of its saved value among those that a
        recomputation gives (0: not inside). Set ``spans``, the cells of the spans, and
        ``entries``, the places of their inputs."""
        n = len(part.order)
        self.spans = [
            LayerBlock(part, replace(some, recomputed=False)) for some in tape.recomputed_spans
        ]
        self.entries = tuple(tuple(map(tape.kept.index, own)) for own in tape.entries)
        ends = {some.layers.stop - 1: number for number, some in enumerate(tape.recomputed_spans)}
        starts = {i: some.layers.start for some in tape.recomputed_spans for i in layer_range(some)}
        self.recomputed_span = tuple(ends.get(i, -1) for i in range(n))
        self.inside = tuple(
            tape.top_numbers[i] - starts.get(i, tape.top_numbers[i]) for i in range(n)
        )

    def recompute_stacks(self, number, tape, masks, flow):
        """Recompute span ``number`` from its inputs among the saved values ``tape``, but not before
        the gradient ``flow`` is known; return the stack before its first layer and after each of
        its layers."""
        block, values = self.spans[number], ()
        for at in self.entries[number]:
            values += (ops.depend(tape[at], flow),)
        return block.walk(values, masks[block.first_mask : block.first_mask + block.dropouts])

    def saved_top(self, i, tape, stacks):
        """Return the value from which the derivative of layer ``i`` starts, the top of a stack:
        from ``stacks`` if it was recomputed, else from the saved values ``tape``."""
        if self.inside[i] > 0:
            return stacks[self.inside[i]][-1]
        return tape[self.place[i]]

    def layer_input(self, i, tape, stacks):
        """Return the input of layer ``i``, computed from its `saved_top` if that is an earlier
        layer's."""
        x = self.saved_top(i, tape, stacks)
        for k in range(self.top_numbers[i], i):
            x = self.order[k](x)
        return x

    def construct(self, *arguments):
        """Add the segment's gradients to the sums, from the last layer to the first; return the
        gradients of the stack before it, or a scalar if they are not wanted."""
        part, n, end = self.part, len(self.part.order), self.kept + self.part.dropouts
        tape, masks = arguments[: self.kept], arguments[self.kept : end]
        kept, flow, used = arguments[end:-1], arguments[-1], part.dropouts
        done, stacks = True, ()
        for j in range(n):
            i = n - 1 - j
            if i >= self.first:
                if self.after[i]:
                    flow = self.lower(flow)
                if self.recomputed_span[i] >= 0:
                    stacks = self.recompute_stacks(self.recomputed_span[i], tape, masks, flow)
                if part.kinds[i] == BRANCH:
                    flow = flow + kept[-1]
                    kept = kept[:-1]
                elif part.kinds[i] == MERGE:
                    kept = (*kept, self.lower(flow) if self.branch[i] else flow)
                elif part.kinds[i] == DROPOUT:
                    if part.dropouts > 0:
                        used -= 1
                        mask = masks[used]
                        flow = flow * (self.lower(mask) if self.after[i] else mask)
                elif self.slopes[i] == TANH:
                    flow = self.tanh(self.saved_top(i, tape, stacks), flow)
                elif self.slopes[i] == RELU:
                    flow = self.relu(flow, self.saved_top(i, tape, stacks))
                elif len(self.layer_parameters[i]) == 0:
                    flow = self.inputs(self.order[i])(self.layer_input(i, tape, stacks), flow)
                else:
                    given = (self.layer_input(i, tape, stacks),)
                    if part.kinds[i] == CARRY and part.dropouts > 0:
                        used -= 1
                        given = (*given, masks[used])
                    if i > self.first:
                        gradients = self.both(self.order[i], self.layer_parameters[i])(*given, flow)
                        flow, own = gradients[0][0], gradients[1]
                    else:
                        own = self.weights(self.order[i], self.layer_parameters[i])(*given, flow)
                    for k in range(len(self.layer_parameters[i])):
                        done = ops.depend(
                            done, ops.assign_add(self.sums[self.sum_indices[i][k]], own[k])
                        )
                if self.before[i]:
                    flow = self.lower(flow)
        if not self.wanted:
            return done
        back = ()
        for gradient in (*kept, flow):
            back += (ops.depend(gradient, done),)
        return back


class Loss(nn.Cell):
    """A cell that returns ``share`` times the mean loss of the last segment's output, which is
    differentiated, and the loss. Arguments: the values of the stack before the segment, masks and
    initial states, the labels, the share.

    Args:
        before: for each value on that stack whether it is in low precision; the casts give their
            gradients the same type.
    """

    def __init__(self, part: ModelPart, criterion: nn.Cell, before: Stack) -> None:
        super().__init__(auto_prefix=False)
        self.part, self.criterion, self.lower = part, criterion, part.low_cast
        self.before = before if part.low_cast is not None else (False,) * part.depth

    def construct(self, *arguments):
        """Return ``share`` times the mean loss, and the mean loss."""
        stack = ()
        for i in range(self.part.depth):
            x = arguments[i]
            stack += (self.lower(x) if self.before[i] else x,)
        masks, (labels, share) = arguments[self.part.depth : -2], arguments[-2:]
        logits = self.part(*stack, *masks)[-1]
        loss = self.criterion(logits.astype(ms.float32), labels)
        return loss * share, loss


class StatefulStageLoss(Loss):
    """A loss cell like `Loss` that also returns the final states of stateful layers."""

    def construct(self, *arguments):
        """Return ``share`` times the mean loss, then a tuple of the mean loss and the final state
        of each stateful layer. Arguments as in `Loss`."""
        masks, (labels, share) = arguments[self.part.depth : -2], arguments[-2:]
        stacks, states = self.part.walk_with_states(arguments[: self.part.depth], masks)
        loss = self.criterion(stacks[-1][-1].astype(ms.float32), labels)
        return loss * share, (loss, *states)


class LossBackward(nn.Cell):
    """A cell that returns the mean loss and the gradients of the stack before the last segment, and
    adds those of the parameters to ``sums``; with a `StatefulStageLoss`, the final states follow.

    Arguments: those of `Loss`.

    Args:
        depth: number of values of the stack whose gradients are returned, 0 for samples.
    """

    def __init__(
        self, loss: Loss, depth: int, parameters: ms.ParameterTuple, sums: ms.ParameterTuple
    ) -> None:
        super().__init__(auto_prefix=False)
        self.carries = isinstance(loss, StatefulStageLoss)
        self.loss, self.sums, self.depth, self.own = loss, sums, depth, len(sums) > 0
        positions = tuple(range(depth)) if depth else None
        weights = parameters if self.own else None
        self.gradient = ops.value_and_grad(loss, positions, weights, has_aux=True)

    def construct(self, *arguments):
        """Add the parameters' gradients of the weighted loss to the sums; return the mean loss, the
        gradients of the stack and the final states, in one tuple."""
        (_, loss), gradients = self.gradient(*arguments)
        flow, own, states = (), (), ()
        if self.carries:
            loss, states = loss[0], loss[1:]
        if self.depth and self.own:
            flow, own = gradients
        elif self.depth:
            flow = gradients
        else:
            own = gradients
        if self.depth == 1:  # for one position MindSpore returns no tuple
            flow = (flow,)
        for i in range(len(self.sums)):
            loss = ops.depend(loss, ops.assign_add(self.sums[i], own[i]))
        back = (loss,)
        for i in range(self.depth):
            back += (flow[i],)
        return back + states


class Outputs(nn.Cell):
    """A cell that returns the stack after a segment, then the top of the stack after each of its
    layers."""

    def __init__(self, part: ModelPart) -> None:
        super().__init__(auto_prefix=False)
        self.part = part

    def construct(self, *stack):
        """Return in one tuple the stack after the segment, then the top after each of its layers,
        for the values ``stack`` before it; Dropout is the identity, and states start from zero."""
        after = self.part.walk(stack, (), self.part.padding_mask(stack[0]))
        outputs = after[-1]
        for values in after[1:]:
            outputs += (values[-1],)
        return outputs


class Score(nn.Cell):
    """A cell that returns loss and predicted class of every sample."""

    def __init__(self, criterion: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.criterion = criterion

    def construct(self, logits, labels):
        """Return the loss of every sample and its predicted class, for ``logits`` with the classes
        on the last axis."""
        return self.criterion.sample_losses(logits.astype(ms.float32), labels), ops.argmax(
            logits, -1
        )


class ZeroSums(nn.Cell):
    """A cell that sets ``sums``, the accumulated gradients, to zero."""

    def __init__(self, sums: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.sums = sums

    def construct(self):
        """Set the sums to zero in place; return a scalar that depends on it."""
        done = True
        for i in range(len(self.sums)):
            done = ops.depend(done, ops.assign(self.sums[i], ops.zeros_like(self.sums[i])))
        return done


class UpdateFromSums(nn.Cell):
    """A cell that makes one update with the accumulated gradients."""

    def __init__(self, optimizer: nn.Optimizer, sums: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer, self.sums = optimizer, sums

    def construct(self):
        """Make one update of the parameters with the sums; return the optimizer's result."""
        return self.optimizer(self.sums)


class JoinSums(nn.Cell):
    """A cell that returns ``sums``, the accumulated gradients, as one flat tensor."""

    def __init__(self, sums: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.sums = sums

    def construct(self):
        """Return the sums, in their order, as one new 1-D tensor."""
        parts = ()
        for i in range(len(self.sums)):
            parts += (self.sums[i].reshape(-1),)
        return ops.cat(parts)


class AssignSums(nn.Cell):
    """A cell that sets ``sums``, the accumulated gradients, from one flat tensor."""

    def __init__(self, sums: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.sums = sums
        self.shapes = tuple(tuple(p.shape) for p in sums)
        sizes = [math.prod(shape) for shape in self.shapes]
        self.ends = tuple((sum(sizes[:i]), sum(sizes[: i + 1])) for i in range(len(sizes)))

    def construct(self, flat):
        """Overwrite the sums, in their order, with parts of the 1-D ``flat``; return a scalar that
        depends on it."""
        done = True
        for i in range(len(self.sums)):
            start, stop = self.ends[i]
            value = flat[start:stop].reshape(self.shapes[i])
            done = ops.depend(done, ops.assign(self.sums[i], value))
        return done
