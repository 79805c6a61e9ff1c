"""The compiled cells of a split model: tensors go in and come out one by one, the top last."""

from __future__ import annotations

import math

import mindspore as ms
from mindspore import nn, ops

from dualml_ms.model.network import BRANCH, DROPOUT, MERGE, Part


class Forward(nn.Cell):
    """The stack after a segment, then what each of its layers took: the tape for `Backward`."""

    def __init__(self, part: Part) -> None:
        super().__init__(auto_prefix=False)
        self.part = part

    def construct(self, *arguments):
        part = self.part
        after = part.walk(arguments[: part.depth], arguments[part.depth :])
        outputs = after[-1]
        for i in range(len(part.order)):
            outputs += (after[i][-1],)
        return outputs


class Backward(nn.Cell):
    """Add the gradients of a segment to the sums; those of the stack before it, where wanted.

    Layer by layer from what each of them took: nothing is computed again but what a layer's own
    derivative needs. Arguments: the inputs of the layers, the masks, the gradients of the stack
    after the segment.
    """

    def __init__(self, part: Part, sums: ms.ParameterTuple, wanted: bool) -> None:
        super().__init__(auto_prefix=False)
        self.part, self.sums, self.wanted = part, sums, wanted
        self.own = tuple(ms.ParameterTuple(cell.trainable_params()) for cell in part.order)
        counts = [len(own) for own in self.own]
        self.at = tuple(sum(counts[:i]) for i in range(len(counts)))
        weighted = [i for i, count in enumerate(counts) if count]
        #: The first layer whose input's gradient somebody wants, minus one.
        self.first = -1 if wanted else min(weighted, default=len(counts))
        self.inputs = ops.GradOperation(sens_param=True)
        self.weights = ops.GradOperation(get_by_list=True, sens_param=True)
        self.both = ops.GradOperation(get_all=True, get_by_list=True, sens_param=True)

    def construct(self, *arguments):
        part, n = self.part, len(self.part.order)
        taken, masks = arguments[:n], arguments[n : n + part.dropouts]
        kept, flow, used = arguments[n + part.dropouts : -1], arguments[-1], part.dropouts
        done = True
        for j in range(n):
            i = n - 1 - j
            if i >= self.first:
                if part.kinds[i] == BRANCH:
                    flow = flow + kept[-1]
                    kept = kept[:-1]
                elif part.kinds[i] == MERGE:
                    kept = (*kept, flow)
                elif part.kinds[i] == DROPOUT:
                    if part.dropouts > 0:
                        used -= 1
                        flow = flow * masks[used]
                elif len(self.own[i]) == 0:
                    flow = self.inputs(part.order[i])(taken[i], flow)
                else:
                    if i > self.first:
                        gradients = self.both(part.order[i], self.own[i])(taken[i], flow)
                        flow, own = gradients[0][0], gradients[1]
                    else:
                        own = self.weights(part.order[i], self.own[i])(taken[i], flow)
                    for k in range(len(self.own[i])):
                        done = ops.depend(done, ops.assign_add(self.sums[self.at[i] + k], own[k]))
        if not self.wanted:
            return done
        back = ()
        for gradient in (*kept, flow):
            back += (ops.depend(gradient, done),)
        return back


class Loss(nn.Cell):
    """Mean loss of the last segment's output. Arguments: the stack, the masks, the labels."""

    def __init__(self, part: Part, criterion: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.part, self.criterion = part, criterion

    def construct(self, *arguments):
        return self.criterion(self.part(*arguments[:-1])[-1], arguments[-1])


class Last(nn.Cell):
    """Loss, and ``share`` times its gradients: parameters' added to the sums, the stack's returned.

    Arguments: those of `Loss`, then the share.
    """

    def __init__(
        self, loss: Loss, depth: int, parameters: ms.ParameterTuple, sums: ms.ParameterTuple
    ) -> None:
        super().__init__(auto_prefix=False)
        self.sums, self.depth, self.own = sums, depth, len(sums) > 0
        positions = tuple(range(depth)) if depth else None
        self.gradient = ops.value_and_grad(loss, positions, parameters if self.own else None)

    def construct(self, *arguments):
        share = arguments[-1]
        loss, gradients = self.gradient(*arguments[:-1])
        flow, own = (), ()
        if self.depth and self.own:
            flow, own = gradients
        elif self.depth:
            flow = gradients
        else:
            own = gradients
        if self.depth == 1:  # of one position MindSpore returns the gradient, not a tuple of it
            flow = (flow,)
        for i in range(len(self.sums)):
            loss = ops.depend(loss, ops.assign_add(self.sums[i], own[i] * share))
        back = (loss,)
        for i in range(self.depth):
            back += (flow[i] * share,)
        return back


class Score(nn.Cell):
    """Mean loss and the predicted classes."""

    def __init__(self, criterion: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.criterion = criterion

    def construct(self, logits, labels):
        return self.criterion(logits, labels), ops.argmax(logits, -1)


class Zero(nn.Cell):
    """Sums of zero."""

    def __init__(self, sums: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.sums = sums

    def construct(self):
        done = True
        for i in range(len(self.sums)):
            done = ops.depend(done, ops.assign(self.sums[i], ops.zeros_like(self.sums[i])))
        return done


class Update(nn.Cell):
    """One update with the gradients added up."""

    def __init__(self, optimizer: nn.Optimizer, sums: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer, self.sums = optimizer, sums

    def construct(self):
        return self.optimizer(self.sums)


class Joined(nn.Cell):
    """The sums as one tensor."""

    def __init__(self, sums: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.sums = sums

    def construct(self):
        parts = ()
        for i in range(len(self.sums)):
            parts += (self.sums[i].reshape(-1),)
        return ops.cat(parts)


class Divided(nn.Cell):
    """The sums replaced by the parts of one tensor."""

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
