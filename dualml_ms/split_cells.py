"""The compiled cells of a split model: tensors are passed and returned one by one, the top last."""

from __future__ import annotations

import math
from dataclasses import replace

import mindspore as ms
from mindspore import nn, ops
from mindspore.ops.operations._grad_ops import ReluGrad, TanhGrad

from dualml.precision import Stack
from dualml_ms.model.network import BRANCH, CARRY, DROPOUT, MERGE, Block, Part
from dualml_ms.model.recurrent import Begun
from dualml_ms.split_tape import RELU, TANH, Tape, span


class Forward(nn.Cell):
    """A cell that returns the stack after a segment, then the tops on its tape from inside the
    segment, then the final states of stateful layers."""

    def __init__(self, part: Part, tape: Tape) -> None:
        super().__init__(auto_prefix=False)
        self.part = part
        self.inner = tuple(at for at in tape.kept if 0 < at < len(part.order))

    def construct(self, *arguments):
        part = self.part
        after, states = part.carried(arguments[: part.depth], arguments[part.depth :])
        outputs = after[-1]
        for at in self.inner:
            outputs += (after[at][-1],)
        return outputs + states


class Step(nn.Cell):
    """One layer of a part in low precision, with its casts."""

    def __init__(self, part: Part, i: int) -> None:
        super().__init__(auto_prefix=False)
        self.cell, self.lower = part.order[i], part.lower
        self.casts, self.widens, self.after = part.casts[i], part.widens[i], part.after[i]

    def construct(self, x):
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

    It goes layer by layer from the values on the tape: only what a layer's own derivative needs is
    computed again, and the spans that are to be recomputed, once their gradient is known.
    Arguments: the tape, the masks, the gradients of the stack after the segment.

    In low precision a gradient has the type of its value.
    """

    def __init__(self, part: Part, sums: ms.ParameterTuple, tape: Tape, wanted: bool) -> None:
        super().__init__(auto_prefix=False)
        self.part, self.sums, self.wanted, self.first = part, sums, wanted, tape.first
        lower, n = part.lower is not None, len(part.order)
        self.order = tuple(Step(part, i) if lower else self.cell(part, i) for i in range(n))
        self.lower = part.lower if lower else None
        self.before = tuple(held.before for held in part.around) if lower else (False,) * n
        self.after = tuple(held.after for held in part.around) if lower else (False,) * n
        self.branch = tuple(held.branch for held in part.around) if lower else (False,) * n
        self.own = tuple(ms.ParameterTuple(cell.trainable_params()) for cell in part.order)
        names = list(part.canonical())  # in the order of the sums
        self.at = tuple(tuple(names.index(p.name) for p in own) for own in self.own)
        self.kept, self.of, self.slopes = len(tape.kept), tuple(tape.of), tape.slopes
        self.place = tuple(tape.kept.index(at) if at in tape.kept else 0 for at in tape.of)
        self.again(part, tape)
        self.tanh, self.relu = TanhGrad(), ReluGrad()
        self.inputs = ops.GradOperation(sens_param=True)
        self.weights = ops.GradOperation(get_by_list=True, sens_param=True)
        self.both = ops.GradOperation(get_all=True, get_by_list=True, sens_param=True)

    @staticmethod
    def cell(part: Part, i: int) -> nn.Cell:
        """Return the cell of a layer that is differentiated."""
        carry = part.kinds[i] == CARRY and part.dropouts > 0
        return Begun(part.order[i]) if carry else part.order[i]

    def again(self, part: Part, tape: Tape) -> None:
        """Determine for each layer the span to recompute that ends with it (``recomputed_span``;
        −1: none), and its saved top within that span (``inside``)."""
        n = len(part.order)
        self.stretches = [Block(part, replace(some, again=False)) for some in tape.again]
        self.entries = tuple(tuple(map(tape.kept.index, own)) for own in tape.entries)
        ends = {some.layers.stop - 1: number for number, some in enumerate(tape.again)}
        starts = {i: some.layers.start for some in tape.again for i in span(some)}
        self.anew = tuple(ends.get(i, -1) for i in range(n))
        self.inside = tuple(tape.of[i] - starts.get(i, tape.of[i]) for i in range(n))

    def stacks(self, number, tape, masks, flow):
        """Recompute the stack before the first layer of a span and after each of its layers."""
        block, values = self.stretches[number], ()
        for at in self.entries[number]:
            values += (ops.depend(tape[at], flow),)
        return block.walk(values, masks[block.begins : block.begins + block.dropouts])

    def top(self, i, tape, stacks):
        """Return the saved value from which layer ``i`` goes back."""
        if self.inside[i] > 0:
            return stacks[self.inside[i]][-1]
        return tape[self.place[i]]

    def taken(self, i, tape, stacks):
        """Return the input of layer ``i``."""
        x = self.top(i, tape, stacks)
        for k in range(self.of[i], i):
            x = self.order[k](x)
        return x

    def construct(self, *arguments):
        part, n, end = self.part, len(self.part.order), self.kept + self.part.dropouts
        tape, masks = arguments[: self.kept], arguments[self.kept : end]
        kept, flow, used = arguments[end:-1], arguments[-1], part.dropouts
        done, stacks = True, ()
        for j in range(n):
            i = n - 1 - j
            if i >= self.first:
                if self.after[i]:
                    flow = self.lower(flow)
                if self.anew[i] >= 0:
                    stacks = self.stacks(self.anew[i], tape, masks, flow)
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
                    flow = self.tanh(self.top(i, tape, stacks), flow)
                elif self.slopes[i] == RELU:
                    flow = self.relu(flow, self.top(i, tape, stacks))
                elif len(self.own[i]) == 0:
                    flow = self.inputs(self.order[i])(self.taken(i, tape, stacks), flow)
                else:
                    given = (self.taken(i, tape, stacks),)
                    if part.kinds[i] == CARRY and part.dropouts > 0:
                        used -= 1
                        given = (*given, masks[used])
                    if i > self.first:
                        gradients = self.both(self.order[i], self.own[i])(*given, flow)
                        flow, own = gradients[0][0], gradients[1]
                    else:
                        own = self.weights(self.order[i], self.own[i])(*given, flow)
                    for k in range(len(self.own[i])):
                        done = ops.depend(done, ops.assign_add(self.sums[self.at[i][k]], own[k]))
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
    differentiated, and the loss. Arguments: the stack, the masks, the labels, the share.

    Args:
        before: which values on the stack are in low precision; the casts give their gradients
            the same type.
    """

    def __init__(self, part: Part, criterion: nn.Cell, before: Stack) -> None:
        super().__init__(auto_prefix=False)
        self.part, self.criterion, self.lower = part, criterion, part.lower
        self.before = before if part.lower is not None else (False,) * part.depth

    def construct(self, *arguments):
        stack = ()
        for i in range(self.part.depth):
            x = arguments[i]
            stack += (self.lower(x) if self.before[i] else x,)
        masks, (labels, share) = arguments[self.part.depth : -2], arguments[-2:]
        logits = self.part(*stack, *masks)[-1]
        loss = self.criterion(logits.astype(ms.float32), labels)
        return loss * share, loss


class EndingLoss(Loss):
    """A loss cell like `Loss` that also returns the final states of stateful layers."""

    def construct(self, *arguments):
        masks, (labels, share) = arguments[self.part.depth : -2], arguments[-2:]
        stacks, states = self.part.carried(arguments[: self.part.depth], masks)
        loss = self.criterion(stacks[-1][-1].astype(ms.float32), labels)
        return loss * share, (loss, *states)


class Last(nn.Cell):
    """A cell that returns the loss and the gradients of the stack, and adds those of the parameters
    to the sums; with a `StatefulStageLoss`, the final states follow.

    Arguments: those of `Loss`.
    """

    def __init__(
        self, loss: Loss, depth: int, parameters: ms.ParameterTuple, sums: ms.ParameterTuple
    ) -> None:
        super().__init__(auto_prefix=False)
        self.carries = isinstance(loss, EndingLoss)
        self.loss, self.sums, self.depth, self.own = loss, sums, depth, len(sums) > 0
        positions = tuple(range(depth)) if depth else None
        weights = parameters if self.own else None
        self.gradient = ops.value_and_grad(loss, positions, weights, has_aux=True)

    def construct(self, *arguments):
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

    def __init__(self, part: Part) -> None:
        super().__init__(auto_prefix=False)
        self.part = part

    def construct(self, *stack):
        after = self.part.walk(stack, (), self.part.here(stack[0]))
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
        return self.criterion.each(logits.astype(ms.float32), labels), ops.argmax(logits, -1)


class Zero(nn.Cell):
    """A cell that sets the sums to zero."""

    def __init__(self, sums: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.sums = sums

    def construct(self):
        done = True
        for i in range(len(self.sums)):
            done = ops.depend(done, ops.assign(self.sums[i], ops.zeros_like(self.sums[i])))
        return done


class Update(nn.Cell):
    """A cell that makes one update with the accumulated gradients."""

    def __init__(self, optimizer: nn.Optimizer, sums: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer, self.sums = optimizer, sums

    def construct(self):
        return self.optimizer(self.sums)


class Joined(nn.Cell):
    """A cell that returns the sums as one flat tensor."""

    def __init__(self, sums: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.sums = sums

    def construct(self):
        parts = ()
        for i in range(len(self.sums)):
            parts += (self.sums[i].reshape(-1),)
        return ops.cat(parts)


class Divided(nn.Cell):
    """A cell that sets the sums from one flat tensor."""

    def __init__(self, sums: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.sums = sums
        self.shapes = tuple(tuple(p.shape) for p in sums)
        sizes = [math.prod(shape) for shape in self.shapes]
        self.ends = tuple((sum(sizes[:i]), sum(sizes[: i + 1])) for i in range(len(sizes)))

    def construct(self, flat):
        done = True
        for i in range(len(self.sums)):
            start, stop = self.ends[i]
            value = flat[start:stop].reshape(self.shapes[i])
            done = ops.depend(done, ops.assign(self.sums[i], value))
        return done
