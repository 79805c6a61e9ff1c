"""Probes of tensor operations in MindSpore."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, ops
from numpy.typing import NDArray

from dualml.parity.diffs.inputs import normal

NAN = np.array([1, np.nan, 3], np.float32)


def gradient(f: Callable[[Tensor], Tensor], values: list[float]) -> NDArray:
    """Return the gradient of the scalar ``f`` at ``values``, as an array of their length."""
    return ms.grad(f)(Tensor(values)).asnumpy()


def inplace_pynative() -> NDArray:
    """Run the probe "In-place methods in PyNative mode on a CPU" in MindSpore and return ``x``
    after both calls. `add_`, `sub_`, `mul_`, `div_` and `exp_` return the result and leave `x` as
    it was, without an error."""
    x = Tensor(normal(4))
    x.mul_(0.5)
    x.add_(1.0)
    return x.asnumpy()


def inplace_pynative_equal() -> NDArray:
    """Run the probe "In-place methods in PyNative mode on a CPU" in MindSpore, written to agree
    with PyTorch, and return ``x`` after both calls. MindSpore: write into the tensor with
    `x.copy_(x * 0.5)`, or `ops.assign` for parameters."""
    x = Tensor(normal(4))
    x.copy_(x * 0.5)
    x.copy_(x + 1.0)
    return x.asnumpy()


def inplace_augmented() -> NDArray:
    """Run the probe "`t += 1` and other names of the same tensor" in MindSpore and return the
    values under the other name. In PyNative mode on a CPU `+=` binds the name to a new tensor;
    other names keep the old values."""
    total = ops.zeros(4)
    alias = total
    total += 1
    return alias.asnumpy()


def inplace_augmented_equal() -> NDArray:
    """Run the probe "`t += 1` and other names of the same tensor" in MindSpore, written to agree
    with PyTorch, and return the values under the other name. MindSpore: `t.copy_(t + 1)`, or
    `ops.assign_add` for a parameter."""
    total = ops.zeros(4)
    alias = total
    total.copy_(total + 1)
    return alias.asnumpy()


def copy_into_view() -> NDArray:
    """Run the probe "`copy_` into a column of a matrix" in MindSpore and return the matrix (2, 3)
    afterwards. `copy_` into a view that is not contiguous is lost: `x` does not change and nothing
    is raised."""
    x = ops.zeros((2, 3))
    x[:, 1].copy_(ops.ones(2))
    return x.asnumpy()


def copy_into_view_equal() -> NDArray:
    """Run the probe "`copy_` into a column of a matrix" in MindSpore, written to agree with
    PyTorch, and return the matrix (2, 3) afterwards. MindSpore: assign by index, `x[:, 1] = …`."""
    x = ops.zeros((2, 3))
    x[:, 1] = ops.ones(2)
    return x.asnumpy()


def parameter_aliasing() -> NDArray:
    """Run the probe "A parameter made of a tensor" in MindSpore and return the parameter after a
    write to the tensor. `ms.Parameter(t)` copies `t`."""
    start = Tensor(normal(4))
    weight = ms.Parameter(start)
    start[0] = 9.0
    return weight.asnumpy()


def from_numpy_sharing() -> dict[str, NDArray]:
    """Run the probe "Which constructors share memory with NumPy" in MindSpore and return a tensor
    of each kind, ``copied`` and ``shared``, after a write to its array. As in PyTorch:
    `ms.Tensor(array)` copies, `ms.Tensor.from_numpy` shares."""
    array, other = normal(4), normal(4)
    x, y = Tensor(array), Tensor.from_numpy(other)
    array[0] = other[0] = 9.0
    return {"copied": x.asnumpy(), "shared": y.asnumpy()}


def numpy_int_default() -> dict[str, NDArray]:
    """Run the probe "Number types of new tensors" in MindSpore and return a new array of each kind
    of values by name. As in PyTorch."""
    values = {"int": [1, 2], "float": [1.0, 2.0], "double": np.array([1.0]), "bool": [True]}
    return {name: Tensor(value).asnumpy() for name, value in values.items()}


def full_type() -> NDArray:
    """Run the probe "`full` without a type" in MindSpore and return its result. `ops.full((2, 3),
    0.5)` is int64 whatever the value, so 0.5 becomes 0."""
    return ops.full((2, 3), 0.5).asnumpy()


def full_type_equal() -> NDArray:
    """Run the probe "`full` without a type" in MindSpore, written to agree with PyTorch, and return
    its result. MindSpore: pass `dtype=ms.float32`."""
    return ops.full((2, 3), 0.5, dtype=ms.float32).asnumpy()


def index_types() -> dict[str, NDArray]:
    """Run the probe "Types of indices, counts and running sums" in MindSpore and return results by
    function. `topk`, `argsort` and `argmin` give int32, `bincount` float32; `cumsum` keeps
    int32."""
    x = Tensor([3.0, 1.0, 2.0])
    return {
        "topk": ops.topk(x, 2)[1].asnumpy(),
        "argsort": ops.argsort(x).asnumpy(),
        "argmin": ops.argmin(x).asnumpy(),
        "bincount": ops.bincount(Tensor([0, 1, 1])).asnumpy(),
        "cumsum": ops.cumsum(Tensor([1, 2], ms.int32), 0).asnumpy(),
    }


def index_types_equal() -> dict[str, NDArray]:
    """Run the probe "Types of indices, counts and running sums" in MindSpore, written to agree with
    PyTorch, and return results by function. MindSpore: cast with `.long()` where int64 is expected;
    pass `dtype=ms.int64` to `cumsum`."""
    x = Tensor([3.0, 1.0, 2.0])
    return {
        "topk": ops.topk(x, 2)[1].long().asnumpy(),
        "argsort": ops.argsort(x).long().asnumpy(),
        "argmin": ops.argmin(x).long().asnumpy(),
        "bincount": ops.bincount(Tensor([0, 1, 1])).long().asnumpy(),
        "cumsum": ops.cumsum(Tensor([1, 2], ms.int32), 0, ms.int64).asnumpy(),
    }


def scalar_promotion() -> dict[str, NDArray]:
    """Run the probe "A tensor plus a tensor without dimensions" in MindSpore and return the sums of
    ``half`` and ``single`` tensors. It counts like any tensor in a sum: float16 becomes float32,
    and float32 becomes float64. A product keeps the type."""
    half, single = ops.ones(2, ms.float16), ops.ones(2)
    return {
        "half": (half + Tensor(2.0)).asnumpy(),
        "single": (single + Tensor(2.0, ms.float64)).asnumpy(),
    }


def scalar_promotion_equal() -> dict[str, NDArray]:
    """Run the probe "A tensor plus a tensor without dimensions" in MindSpore, written to agree with
    PyTorch, and return the sums of ``half`` and ``single`` tensors. MindSpore: cast the scalar,
    `s.astype(x.dtype)`, or use a Python number."""
    half, single = ops.ones(2, ms.float16), ops.ones(2)
    return {
        "half": (half + Tensor(2.0).astype(half.dtype)).asnumpy(),
        "single": (single + Tensor(2.0, ms.float64).astype(single.dtype)).asnumpy(),
    }


def float16_scalar() -> NDArray:
    """Run the probe "float16 times a Python number" in MindSpore and return the products (64,). The
    number itself is rounded to float16 first."""
    return (Tensor(normal(64)).half() * 1e-3).asnumpy()


def float16_scalar_equal() -> NDArray:
    """Run the probe "float16 times a Python number" in MindSpore, written to agree with PyTorch,
    and return the products (64,). Multiply in float32 and cast back: `(x.float() *
    1e-3).half()`."""
    x = Tensor(normal(64)).half()
    return (x.float() * 1e-3).half().asnumpy()


def mean_of_integers() -> NDArray:
    """Run the probe "The mean of integers" in MindSpore and return its result. It gives an integer:
    the mean of 1 and 2 is 1."""
    return Tensor([1, 2]).mean().asnumpy()


def mean_of_integers_equal() -> NDArray:
    """Run the probe "The mean of integers" in MindSpore, written to agree with PyTorch, and return
    its result. `x.float().mean()` on both sides."""
    return Tensor([1, 2]).float().mean().asnumpy()


def integer_division_by_zero() -> NDArray:
    """Run the probe "Integer division by zero" in MindSpore and return its result. It gives a huge
    integer and no error."""
    return (Tensor([6, 1]) // Tensor([2, 0])).asnumpy()


def integer_division_by_zero_equal() -> NDArray:
    """Run the probe "Integer division by zero" in MindSpore, written to agree with PyTorch, and
    return its result. Clamp the divisor, `count.clamp(min=1)`, on both sides."""
    count = Tensor([2, 0])
    return (Tensor([6, 1]) // count.clamp(min=1)).asnumpy()


def division_of_integers() -> dict[str, NDArray]:
    """Run the probe "`/`, `//` and `%` of integers" in MindSpore and return results by operator. As
    in PyTorch."""
    a, b = Tensor([7, -7]), Tensor([2, 2])
    return {"/": (a / b).asnumpy(), "//": (a // b).asnumpy(), "%": (a % b).asnumpy()}


def variance_ddof() -> dict[str, NDArray]:
    """Run the probe "Variance and standard deviation" in MindSpore and return ``var`` and ``std``
    of four numbers. `x.var()` and `x.std()` divide by n."""
    x = Tensor(normal(4))
    return {"var": x.var().asnumpy(), "std": x.std().asnumpy()}


def variance_ddof_equal() -> dict[str, NDArray]:
    """Run the probe "Variance and standard deviation" in MindSpore, written to agree with PyTorch,
    and return ``var`` and ``std`` of four numbers. MindSpore: pass `ddof=1`."""
    x = Tensor(normal(4))
    return {"var": x.var(ddof=1).asnumpy(), "std": x.std(ddof=1).asnumpy()}


def std_cpu() -> NDArray:
    """Run the probe "`mint.std` on a CPU" in MindSpore, where it raises RuntimeError; else return
    its result. `mint.std`, the function with PyTorch's meaning, has no kernel for CPUs and raises
    an error."""
    return mint.std(Tensor(normal(4))).asnumpy()


def std_cpu_equal() -> NDArray:
    """Run the probe "`mint.std` on a CPU" in MindSpore, written to agree with PyTorch, and return
    its result. MindSpore: `ops.std(x, ddof=1)`."""
    return ops.std(Tensor(normal(4)), ddof=1).asnumpy()


def norm_positional() -> NDArray:
    """Run the probe "`x.norm(1)` of a matrix" in MindSpore and return its result. The matrix norm
    of order 1: the largest column sum of absolute values."""
    return Tensor(normal(3, 4)).norm(1).asnumpy()


def norm_positional_equal() -> NDArray:
    """Run the probe "`x.norm(1)` of a matrix" in MindSpore, written to agree with PyTorch, and
    return its result. MindSpore: `x.reshape(-1).norm(1)`."""
    return Tensor(normal(3, 4)).reshape(-1).norm(1).asnumpy()


def norm_gradient_zero() -> NDArray:
    """Run the probe "The gradient of a norm at zero" in MindSpore and return its result. NaN."""
    return gradient(lambda x: x.norm(), [0.0, 0.0])


def norm_gradient_zero_equal() -> NDArray:
    """Run the probe "The gradient of a norm at zero" in MindSpore, written to agree with PyTorch,
    and return its result. MindSpore: add a small number under the root, `ops.sqrt((x * x).sum() +
    1e-12)`."""
    return gradient(lambda x: ops.sqrt((x * x).sum() + 1e-12), [0.0, 0.0])


def std_gradient_constant() -> NDArray:
    """Run the probe "The gradient of `std` of equal numbers" in MindSpore and return its result.
    NaN."""
    return gradient(lambda x: x.std(ddof=1), [1.0, 1.0, 1.0])


def std_gradient_constant_equal() -> NDArray:
    """Run the probe "The gradient of `std` of equal numbers" in MindSpore, written to agree with
    PyTorch, and return its result. MindSpore: take the root yourself, `ops.sqrt(x.var(ddof=1) +
    1e-12)`."""
    return gradient(lambda x: ops.sqrt(x.var(ddof=1) + 1e-12), [1.0, 1.0, 1.0])


def cumprod_gradient_zero() -> NDArray:
    """Run the probe "The gradient of `cumprod` where a factor is zero" in MindSpore and return its
    result. NaN at the zero."""
    return gradient(lambda x: x.cumprod(0).sum(), [1.0, 0.0, 3.0])


def cumprod_gradient_zero_equal() -> NDArray:
    """Run the probe "The gradient of `cumprod` where a factor is zero" in MindSpore, written to
    agree with PyTorch, and return its result. MindSpore: products of slices, `x[:2].prod()`, whose
    gradient is right."""
    return gradient(lambda x: x[0] + x[:2].prod() + x.prod(), [1.0, 0.0, 3.0])


def hardtanh_gradient() -> NDArray:
    """Run the probe "The gradient of `hardtanh` and `relu6` at their bounds" in MindSpore and
    return the gradient of hardtanh(x) + relu6(x) at −1, 0.5, 1 and 6. Not 0: `hardtanh` gives 0.5
    at −1 and 1, `relu6` gives 1 at 6."""
    return gradient(lambda x: ops.hardtanh(x).sum() + ops.relu6(x).sum(), [-1.0, 0.5, 1.0, 6.0])


def hardtanh_gradient_equal() -> NDArray:
    """Run the probe "The gradient of `hardtanh` and `relu6` at their bounds" in MindSpore, written
    to agree with PyTorch, and return the gradient of their sum at −1, 0.5, 1 and 6. MindSpore:
    `ops.where` with strict comparisons and `ops.stop_gradient` of the clipped value."""

    def clip(x: Tensor, low: float, high: float) -> Tensor:
        return ops.where((x > low) & (x < high), x, ops.stop_gradient(ops.clamp(x, low, high)))

    return gradient(lambda x: (clip(x, -1.0, 1.0) + clip(x, 0.0, 6.0)).sum(), [-1.0, 0.5, 1.0, 6.0])


def nan_relu() -> NDArray:
    """Run the probe "ReLU of NaN" in MindSpore and return the output for 1, NaN and 3. `ops.relu`
    turns NaN into 0 on a CPU, which hides where training broke."""
    return ops.relu(Tensor(NAN)).asnumpy()


def nan_relu_equal() -> NDArray:
    """Run the probe "ReLU of NaN" in MindSpore, written to agree with PyTorch, and return whether
    1, NaN and 3 are finite. Check `ops.isfinite` before the activation rather than in the loss."""
    return ops.isfinite(Tensor(NAN)).asnumpy()


def nan_max() -> NDArray:
    """Run the probe "The maximum of numbers with a NaN" in MindSpore and return the maximum of 1,
    NaN and 3. The NaN is passed over on a CPU unless it comes first."""
    return Tensor(NAN).max().asnumpy()


def nan_max_equal() -> NDArray:
    """Run the probe "The maximum of numbers with a NaN" in MindSpore, written to agree with
    PyTorch, and return the maximum of 1, NaN and 3. Take the maximum of what is not NaN,
    `x[~x.isnan()].max()`, on both sides."""
    x = Tensor(NAN)
    return x[~x.isnan()].max().asnumpy()


def softmax_all_masked() -> NDArray:
    """Run the probe "Softmax of a row that is masked entirely" in MindSpore and return its result.
    0 on a CPU in the first such row; later ones keep what the memory held."""
    return ops.softmax(ops.full((1, 3), float("-inf"), dtype=ms.float32), -1).asnumpy()


def logsigmoid_tail() -> NDArray:
    """Run the probe "`logsigmoid` of large negative numbers" in MindSpore and return its result.
    −∞: the exponential overflows on a CPU."""
    return ops.logsigmoid(Tensor([-100.0, 1.0])).asnumpy()


def logsigmoid_tail_equal() -> NDArray:
    """Run the probe "`logsigmoid` of large negative numbers" in MindSpore, written to agree with
    PyTorch, and return its result. MindSpore: `-ops.softplus(-x)`."""
    return -ops.softplus(-Tensor([-100.0, 1.0])).asnumpy()


def xlogy_zero() -> NDArray:
    """Run the probe "`xlogy(0, 0)`, as in entropies" in MindSpore and return its result. NaN."""
    x = Tensor([0.0, 0.5])
    return ops.xlogy(x, x).asnumpy()


def xlogy_zero_equal() -> NDArray:
    """Run the probe "`xlogy(0, 0)`, as in entropies" in MindSpore, written to agree with PyTorch,
    and return its result. MindSpore: `x * ops.log(ops.where(x == 0, 1.0, x))`."""
    x = Tensor([0.0, 0.5])
    return (x * ops.log(ops.where(x == 0, 1.0, x))).asnumpy()


def small_arguments() -> dict[str, NDArray]:
    """Run the probe "`expm1` and `log1p` near zero" in MindSpore and return results by function for
    three numbers. On a CPU no better than `exp(x) - 1` and `log(1 + x)`: 1e-8 gives 0."""
    x = Tensor([1e-8, 1e-7, 1e-6])
    return {"expm1": ops.expm1(x).asnumpy(), "log1p": ops.log1p(x).asnumpy()}


def small_arguments_equal() -> dict[str, NDArray]:
    """Run the probe "`expm1` and `log1p` near zero" in MindSpore, written to agree with PyTorch,
    and return results by function for three numbers. MindSpore: the first terms of the series for
    small x, `x + x * x / 2` and `x - x * x / 2`."""
    x = Tensor([1e-8, 1e-7, 1e-6])
    return {"expm1": (x + x * x / 2).asnumpy(), "log1p": (x - x * x / 2).asnumpy()}


def erfinv_accuracy() -> NDArray:
    """Run the probe "`erfinv` near ±1" in MindSpore and return results for three numbers. Too small
    in the tails on a CPU: 2.28 in place of 2.33 at 0.999."""
    return ops.erfinv(Tensor([-0.999, 0.5, 0.999])).asnumpy()


def cumsum_accuracy() -> NDArray:
    """Run the probe "Long running sums" in MindSpore and return the last sum. On a CPU the sum
    itself is float32, and the last one is off by about 1 %."""
    return ops.full((1_000_000,), 0.1, dtype=ms.float32).cumsum(0)[-1].asnumpy()


def cumsum_accuracy_equal() -> NDArray:
    """Run the probe "Long running sums" in MindSpore, written to agree with PyTorch, and return the
    last sum. MindSpore: `x.double().cumsum(0).float()`."""
    x = ops.full((1_000_000,), 0.1, dtype=ms.float32)
    return x.double().cumsum(0).float()[-1].asnumpy()


def topk_ties() -> NDArray:
    """Run the probe "Which of equal numbers `topk` picks" in MindSpore and return the indices of
    the six largest. The first ones, in their order."""
    return ops.topk(Tensor([2.0, 1, 2, 1, 2, 1, 2, 1]), 6)[1].asnumpy()


def one_hot_range() -> NDArray:
    """Run the probe "`one_hot` of a class that does not exist" in MindSpore and return the rows of
    classes 0 and 3 of 3. Gives a row of zeros, and a loss that ignores the sample."""
    return ops.one_hot(Tensor([0, 3]), 3).asnumpy()


def gather_meaning() -> NDArray:
    """Run the probe "What `gather` picks" in MindSpore and return its result. `ops.gather(x, index,
    0)` picks a whole row for each index."""
    x, index = Tensor(normal(3, 4)), Tensor([[0, 1, 2, 0]])
    return ops.gather(x, index, 0).asnumpy()


def gather_meaning_equal() -> NDArray:
    """Run the probe "What `gather` picks" in MindSpore, written to agree with PyTorch, and return
    its result. MindSpore: `ops.gather_elements(x, 0, index)`."""
    x, index = Tensor(normal(3, 4)), Tensor([[0, 1, 2, 0]])
    return ops.gather_elements(x, 0, index).asnumpy()


def unique_order() -> NDArray:
    """Run the probe "The order of `unique`" in MindSpore and return its result. In the order of
    first appearance; a tuple that has the inverse indices too."""
    return ops.unique(Tensor([3, 1, 3, 2]))[0].asnumpy()


def unique_order_equal() -> NDArray:
    """Run the probe "The order of `unique`" in MindSpore, written to agree with PyTorch, and return
    its result. MindSpore: `ops.sort(ops.unique(x)[0])[0]`."""
    return ops.sort(ops.unique(Tensor([3, 1, 3, 2]))[0])[0].asnumpy()


def flatten_function() -> NDArray:
    """Run the probe "`flatten` as a function" in MindSpore and return its result. `ops.flatten(x)`
    keeps the first dimension; the method `x.flatten()` does not."""
    return ops.flatten(Tensor(normal(2, 3, 4))).asnumpy()


def flatten_function_equal() -> NDArray:
    """Run the probe "`flatten` as a function" in MindSpore, written to agree with PyTorch, and
    return its result. Pass `start_dim` on both sides."""
    return ops.flatten(Tensor(normal(2, 3, 4)), start_dim=0).asnumpy()


def repeat_tiles() -> NDArray:
    """Run the probe "`x.repeat(2, 1)`" in MindSpore, where it raises RuntimeError; else return its
    result. `Tensor.repeat` is not supported on a CPU and raises an error."""
    return Tensor(normal(2, 3)).repeat(2, 1).asnumpy()


def repeat_tiles_equal() -> NDArray:
    """Run the probe "`x.repeat(2, 1)`" in MindSpore, written to agree with PyTorch, and return its
    result. MindSpore: `ops.tile(x, (2, 1))`."""
    return ops.tile(Tensor(normal(2, 3)), (2, 1)).asnumpy()


def max_over_axis() -> Any:
    """Run the probe "The maximum along an axis" in MindSpore and return a list of the arrays that
    it gives. `x.max(axis=1)` gives the values only, as NumPy does; `x.max(dim=1)` gives both."""
    return [Tensor(normal(3, 4)).max(axis=1).asnumpy()]


def max_over_axis_equal() -> NDArray:
    """Run the probe "The maximum along an axis" in MindSpore, written to agree with PyTorch, and
    return the maxima (3,). `x.amax(1)` for values on both sides."""
    return Tensor(normal(3, 4)).amax(axis=1).asnumpy()


def tensor_size() -> int:
    """Run the probe "`x.size`" in MindSpore, where it raises TypeError; else return the first
    length of a (3, 4) tensor. The number of elements, as in NumPy; calling it raises an error."""
    return Tensor(normal(3, 4)).size()[0]


def tensor_size_equal() -> int:
    """Run the probe "`x.size`" in MindSpore, written to agree with PyTorch, and return the first
    length of a (3, 4) tensor. `x.shape` on both sides."""
    return Tensor(normal(3, 4)).shape[0]


def concatenate_types() -> NDArray:
    """Run the probe "`cat` of float and integer tensors" in MindSpore, where it raises
    RuntimeError; else return its result. Raises an error on a CPU."""
    return ops.cat([Tensor([1.5]), Tensor([1, 2])]).asnumpy()


def concatenate_types_equal() -> NDArray:
    """Run the probe "`cat` of float and integer tensors" in MindSpore, written to agree with
    PyTorch, and return its result. MindSpore: cast first, `x.float()`."""
    return ops.cat([Tensor([1.5]), Tensor([1, 2]).float()]).asnumpy()


def view_of_transposed() -> NDArray:
    """Run the probe "`view` of a transposed tensor" in MindSpore and return its result. Gives a
    copy; what is written to it does not reach the original."""
    return Tensor(normal(2, 3)).T.view(6).asnumpy()


def view_of_transposed_equal() -> NDArray:
    """Run the probe "`view` of a transposed tensor" in MindSpore, written to agree with PyTorch,
    and return its result. `reshape` on both sides, and don't write to the result."""
    return Tensor(normal(2, 3)).T.reshape(6).asnumpy()


def tanh_saturation() -> dict[str, NDArray]:
    """Run the probe "`tanh` near and beyond 5" in MindSpore and return 1 − tanh as ``tail`` and the
    ``gradient`` at three numbers. `ops.tanh` is exactly ±1 from about 5 on, on a CPU, and its
    gradient exactly 0."""
    values = [4.9, 5.1, 6.0]
    tail = 1 - ops.tanh(Tensor(values))
    return {"tail": tail.asnumpy(), "gradient": gradient(lambda x: ops.tanh(x).sum(), values)}


def tanh_saturation_equal() -> dict[str, NDArray]:
    """Run the probe "`tanh` near and beyond 5" in MindSpore, written to agree with PyTorch, and
    return 1 − tanh as ``tail`` and the ``gradient`` at three numbers. MindSpore: `2 * ops.sigmoid(2
    * x) - 1`."""

    def tanh(x: Tensor) -> Tensor:
        return 2 * ops.sigmoid(2 * x) - 1

    values = [4.9, 5.1, 6.0]
    tail = 1 - tanh(Tensor(values))
    return {"tail": tail.asnumpy(), "gradient": gradient(lambda x: tanh(x).sum(), values)}
