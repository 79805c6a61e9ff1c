"""Probes of tensor operations in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from dualml.parity.diffs.inputs import normal

NAN = np.array([1, np.nan, 3], np.float32)


def gradient(f: Callable[[Tensor], Tensor], values: list[float]) -> NDArray:
    """Return the gradient of the scalar ``f(x)`` at the 1-D ``values``."""
    x = torch.tensor(values, requires_grad=True)
    f(x).backward()
    return x.grad.numpy()


def inplace_pynative() -> NDArray:
    """Run the probe "In-place methods in PyNative mode on a CPU" in PyTorch and return ``x`` after
    both calls. `x.mul_(…)` and `x.add_(…)` change `x`."""
    x = torch.tensor(normal(4))
    x.mul_(0.5)
    x.add_(1.0)
    return x.numpy()


def inplace_augmented() -> NDArray:
    """Run the probe "`t += 1` and other names of the same tensor" in PyTorch and return the values
    under the other name. `+=` writes into the tensor, so every name that refers to it sees the new
    values."""
    total = torch.zeros(4)
    alias = total
    total += 1
    return alias.numpy()


def copy_into_view() -> NDArray:
    """Run the probe "`copy_` into a column of a matrix" in PyTorch and return the matrix (2, 3)
    afterwards. `x[:, 1].copy_(…)` writes into `x`."""
    x = torch.zeros(2, 3)
    x[:, 1].copy_(torch.ones(2))
    return x.numpy()


def parameter_aliasing() -> NDArray:
    """Run the probe "A parameter made of a tensor" in PyTorch and return the parameter after a
    write to the tensor. `nn.Parameter(t)` shares the memory of `t`: writing to one changes the
    other."""
    start = torch.tensor(normal(4))
    weight = nn.Parameter(start)
    start[0] = 9.0
    return weight.detach().numpy()


def parameter_aliasing_equal() -> NDArray:
    """Run the probe "A parameter made of a tensor" in PyTorch, written to agree with MindSpore, and
    return the parameter after a write to the tensor. PyTorch: `nn.Parameter(t.clone())` where the
    original is written to later."""
    start = torch.tensor(normal(4))
    weight = nn.Parameter(start.clone())
    start[0] = 9.0
    return weight.detach().numpy()


def from_numpy_sharing() -> dict[str, NDArray]:
    """Run the probe "Which constructors share memory with NumPy" in PyTorch and return a tensor of
    each kind, ``copied`` and ``shared``, after a write to its array. `torch.tensor` copies the
    array, `torch.from_numpy` shares its memory."""
    array, other = normal(4), normal(4)
    x, y = torch.tensor(array), torch.from_numpy(other)
    array[0] = other[0] = 9.0
    return {"copied": x.numpy(), "shared": y.numpy()}


def numpy_int_default() -> dict[str, NDArray]:
    """Run the probe "Number types of new tensors" in PyTorch and return a new array of each kind of
    values by name. Python integers become int64, Python floats float32; NumPy arrays keep their
    type, float64 included."""
    values = {"int": [1, 2], "float": [1.0, 2.0], "double": np.array([1.0]), "bool": [True]}
    return {name: torch.tensor(value).numpy() for name, value in values.items()}


def full_type() -> NDArray:
    """Run the probe "`full` without a type" in PyTorch and return its result. `torch.full((2, 3),
    0.5)` takes the type of the value: float32."""
    return torch.full((2, 3), 0.5).numpy()


def index_types() -> dict[str, NDArray]:
    """Run the probe "Types of indices, counts and running sums" in PyTorch and return results by
    function. `topk`, `argsort`, `argmin` and `bincount` give int64; `cumsum` of int32 gives
    int64."""
    x = torch.tensor([3.0, 1.0, 2.0])
    return {
        "topk": torch.topk(x, 2)[1].numpy(),
        "argsort": torch.argsort(x).numpy(),
        "argmin": torch.argmin(x).numpy(),
        "bincount": torch.bincount(torch.tensor([0, 1, 1])).numpy(),
        "cumsum": torch.cumsum(torch.tensor([1, 2], dtype=torch.int32), 0).numpy(),
    }


def scalar_promotion() -> dict[str, NDArray]:
    """Run the probe "A tensor plus a tensor without dimensions" in PyTorch and return the sums of
    ``half`` and ``single`` tensors. A tensor without dimensions does not widen the result: float16
    plus a float32 scalar tensor stays float16."""
    half, single = torch.ones(2, dtype=torch.float16), torch.ones(2)
    return {
        "half": (half + torch.tensor(2.0)).numpy(),
        "single": (single + torch.tensor(2.0, dtype=torch.float64)).numpy(),
    }


def float16_scalar() -> NDArray:
    """Run the probe "float16 times a Python number" in PyTorch and return the products (64,). On a
    CPU the number keeps its precision during the product; only the result is rounded to float16."""
    return (torch.tensor(normal(64)).half() * 1e-3).numpy()


def float16_scalar_equal() -> NDArray:
    """Run the probe "float16 times a Python number" in PyTorch, written to agree with MindSpore,
    and return the products (64,). Multiply in float32 and cast back: `(x.float() *
    1e-3).half()`."""
    x = torch.tensor(normal(64)).half()
    return (x.float() * 1e-3).half().numpy()


def mean_of_integers() -> NDArray:
    """Run the probe "The mean of integers" in PyTorch, where it raises RuntimeError; else return
    its result. `mean()` of an integer tensor raises an error."""
    return torch.tensor([1, 2]).mean().numpy()


def mean_of_integers_equal() -> NDArray:
    """Run the probe "The mean of integers" in PyTorch, written to agree with MindSpore, and return
    its result. `x.float().mean()` on both sides."""
    return torch.tensor([1, 2]).float().mean().numpy()


def integer_division_by_zero() -> NDArray:
    """Run the probe "Integer division by zero" in PyTorch, where it raises RuntimeError; else
    return its result. `//` of integers by 0 raises an error on a CPU."""
    return (torch.tensor([6, 1]) // torch.tensor([2, 0])).numpy()


def integer_division_by_zero_equal() -> NDArray:
    """Run the probe "Integer division by zero" in PyTorch, written to agree with MindSpore, and
    return its result. Clamp the divisor, `count.clamp(min=1)`, on both sides."""
    count = torch.tensor([2, 0])
    return (torch.tensor([6, 1]) // count.clamp(min=1)).numpy()


def division_of_integers() -> dict[str, NDArray]:
    """Run the probe "`/`, `//` and `%` of integers" in PyTorch and return results by operator. `/`
    gives float32, `//` rounds down, `%` has the sign of the divisor."""
    a, b = torch.tensor([7, -7]), torch.tensor([2, 2])
    return {"/": (a / b).numpy(), "//": (a // b).numpy(), "%": (a % b).numpy()}


def variance_ddof() -> dict[str, NDArray]:
    """Run the probe "Variance and standard deviation" in PyTorch and return ``var`` and ``std`` of
    four numbers. `x.var()` and `x.std()` divide by n − 1."""
    x = torch.tensor(normal(4))
    return {"var": x.var().numpy(), "std": x.std().numpy()}


def std_cpu() -> NDArray:
    """Run the probe "`mint.std` on a CPU" in PyTorch and return its result. `torch.std` runs
    everywhere."""
    return torch.std(torch.tensor(normal(4))).numpy()


def norm_positional() -> NDArray:
    """Run the probe "`x.norm(1)` of a matrix" in PyTorch and return its result. The sum of all
    absolute values: the matrix is taken as one vector."""
    return torch.tensor(normal(3, 4)).norm(1).numpy()


def norm_gradient_zero() -> NDArray:
    """Run the probe "The gradient of a norm at zero" in PyTorch and return its result. 0."""
    return gradient(lambda x: x.norm(), [0.0, 0.0])


def std_gradient_constant() -> NDArray:
    """Run the probe "The gradient of `std` of equal numbers" in PyTorch and return its result.
    0."""
    return gradient(lambda x: x.std(), [1.0, 1.0, 1.0])


def cumprod_gradient_zero() -> NDArray:
    """Run the probe "The gradient of `cumprod` where a factor is zero" in PyTorch and return its
    result. The true gradient."""
    return gradient(lambda x: x.cumprod(0).sum(), [1.0, 0.0, 3.0])


def hardtanh_gradient() -> NDArray:
    """Run the probe "The gradient of `hardtanh` and `relu6` at their bounds" in PyTorch and return
    the gradient of hardtanh(x) + relu6(x) at −1, 0.5, 1 and 6. 0 at both bounds."""
    return gradient(lambda x: F.hardtanh(x).sum() + F.relu6(x).sum(), [-1.0, 0.5, 1.0, 6.0])


def nan_relu() -> NDArray:
    """Run the probe "ReLU of NaN" in PyTorch and return the output for 1, NaN and 3. NaN stays NaN,
    so a broken forward pass shows in the loss."""
    return torch.relu(torch.tensor(NAN)).numpy()


def nan_relu_equal() -> NDArray:
    """Run the probe "ReLU of NaN" in PyTorch, written to agree with MindSpore, and return whether
    1, NaN and 3 are finite. Check `ops.isfinite` before the activation rather than in the loss."""
    return torch.isfinite(torch.tensor(NAN)).numpy()


def nan_max() -> NDArray:
    """Run the probe "The maximum of numbers with a NaN" in PyTorch and return the maximum of 1, NaN
    and 3. NaN."""
    return torch.tensor(NAN).max().numpy()


def nan_max_equal() -> NDArray:
    """Run the probe "The maximum of numbers with a NaN" in PyTorch, written to agree with
    MindSpore, and return the maximum of 1, NaN and 3. Take the maximum of what is not NaN,
    `x[~x.isnan()].max()`, on both sides."""
    x = torch.tensor(NAN)
    return x[~x.isnan()].max().numpy()


def softmax_all_masked() -> NDArray:
    """Run the probe "Softmax of a row that is masked entirely" in PyTorch and return its result.
    NaN where every score is −∞."""
    return torch.softmax(torch.full((1, 3), float("-inf")), -1).numpy()


def softmax_all_masked_equal() -> NDArray:
    """Run the probe "Softmax of a row that is masked entirely" in PyTorch, written to agree with
    MindSpore, and return its result. PyTorch: `.nan_to_num(0.0)`, or leave one key visible in each
    row."""
    return torch.softmax(torch.full((1, 3), float("-inf")), -1).nan_to_num(0.0).numpy()


def logsigmoid_tail() -> NDArray:
    """Run the probe "`logsigmoid` of large negative numbers" in PyTorch and return its result. −100
    for an input of −100."""
    return F.logsigmoid(torch.tensor([-100.0, 1.0])).numpy()


def xlogy_zero() -> NDArray:
    """Run the probe "`xlogy(0, 0)`, as in entropies" in PyTorch and return its result. 0."""
    x = torch.tensor([0.0, 0.5])
    return torch.xlogy(x, x).numpy()


def small_arguments() -> dict[str, NDArray]:
    """Run the probe "`expm1` and `log1p` near zero" in PyTorch and return results by function for
    three numbers. Accurate to the last digits, which is what they are for."""
    x = torch.tensor([1e-8, 1e-7, 1e-6])
    return {"expm1": torch.expm1(x).numpy(), "log1p": torch.log1p(x).numpy()}


def erfinv_accuracy() -> NDArray:
    """Run the probe "`erfinv` near ±1" in PyTorch and return results for three numbers. Accurate in
    float32."""
    return torch.erfinv(torch.tensor([-0.999, 0.5, 0.999])).numpy()


def cumsum_accuracy() -> NDArray:
    """Run the probe "Long running sums" in PyTorch and return the last sum. `cumsum` of a million
    float32 numbers stays accurate."""
    return torch.full((1_000_000,), 0.1).cumsum(0)[-1].numpy()


def topk_ties() -> NDArray:
    """Run the probe "Which of equal numbers `topk` picks" in PyTorch and return the indices of the
    six largest. Any of them; on a CPU often not the first."""
    return torch.tensor([2.0, 1, 2, 1, 2, 1, 2, 1]).topk(6)[1].numpy()


def topk_ties_equal() -> NDArray:
    """Run the probe "Which of equal numbers `topk` picks" in PyTorch, written to agree with
    MindSpore, and return the indices of the six largest. PyTorch: `x.sort(descending=True,
    stable=True)` and its first k."""
    x = torch.tensor([2.0, 1, 2, 1, 2, 1, 2, 1])
    return x.sort(descending=True, stable=True)[1][:6].numpy()


def one_hot_range() -> NDArray:
    """Run the probe "`one_hot` of a class that does not exist" in PyTorch, where it raises
    RuntimeError; else return the rows of classes 0 and 3 of 3. Raises an error."""
    return F.one_hot(torch.tensor([0, 3]), 3).numpy()


def one_hot_range_equal() -> NDArray:
    """Run the probe "`one_hot` of a class that does not exist" in PyTorch, written to agree with
    MindSpore, and return the rows of classes 0 and 3 of 3. Check labels once on both sides;
    `labels[:, None] == arange(n)` gives zeros in PyTorch too."""
    return (torch.tensor([0, 3])[:, None] == torch.arange(3)).long().numpy()


def gather_meaning() -> NDArray:
    """Run the probe "What `gather` picks" in PyTorch and return its result. `torch.gather(x, 0,
    index)` picks one element for each index."""
    x, index = torch.tensor(normal(3, 4)), torch.tensor([[0, 1, 2, 0]])
    return torch.gather(x, 0, index).numpy()


def unique_order() -> NDArray:
    """Run the probe "The order of `unique`" in PyTorch and return its result. Sorted."""
    return torch.unique(torch.tensor([3, 1, 3, 2])).numpy()


def flatten_function() -> NDArray:
    """Run the probe "`flatten` as a function" in PyTorch and return its result. `torch.flatten(x)`
    flattens every dimension."""
    return torch.flatten(torch.tensor(normal(2, 3, 4))).numpy()


def repeat_tiles() -> NDArray:
    """Run the probe "`x.repeat(2, 1)`" in PyTorch and return its result. Tiles the tensor."""
    return torch.tensor(normal(2, 3)).repeat(2, 1).numpy()


def max_over_axis() -> Any:
    """Run the probe "The maximum along an axis" in PyTorch and return a list of the arrays that it
    gives. `x.max(dim=1)` gives values and indices."""
    return [x.numpy() for x in torch.tensor(normal(3, 4)).max(dim=1)]


def max_over_axis_equal() -> NDArray:
    """Run the probe "The maximum along an axis" in PyTorch, written to agree with MindSpore, and
    return the maxima (3,). `x.amax(1)` for values on both sides."""
    return torch.tensor(normal(3, 4)).amax(dim=1).numpy()


def tensor_size() -> int:
    """Run the probe "`x.size`" in PyTorch and return the first length of a (3, 4) tensor. A method
    that gives the shape."""
    return torch.tensor(normal(3, 4)).size()[0]


def concatenate_types() -> NDArray:
    """Run the probe "`cat` of float and integer tensors" in PyTorch and return its result. The
    integers become floats."""
    return torch.cat([torch.tensor([1.5]), torch.tensor([1, 2])]).numpy()


def view_of_transposed() -> NDArray:
    """Run the probe "`view` of a transposed tensor" in PyTorch, where it raises RuntimeError; else
    return its result. Raises an error: a view of this memory is impossible."""
    return torch.tensor(normal(2, 3)).T.view(6).numpy()


def view_of_transposed_equal() -> NDArray:
    """Run the probe "`view` of a transposed tensor" in PyTorch, written to agree with MindSpore,
    and return its result. `reshape` on both sides, and don't write to the result."""
    return torch.tensor(normal(2, 3)).T.reshape(6).numpy()


def tanh_saturation() -> dict[str, NDArray]:
    """Run the probe "`tanh` near and beyond 5" in PyTorch and return 1 − tanh as ``tail`` and the
    ``gradient`` at three numbers. `tanh(5.1)` is below 1 and its gradient is not 0."""
    values = [4.9, 5.1, 6.0]
    tail = 1 - torch.tanh(torch.tensor(values))
    return {"tail": tail.numpy(), "gradient": gradient(lambda x: torch.tanh(x).sum(), values)}
