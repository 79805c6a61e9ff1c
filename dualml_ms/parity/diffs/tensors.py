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
    return ms.grad(f)(Tensor(values)).asnumpy()


def inplace_pynative() -> NDArray:
    x = Tensor(normal(4))
    x.mul_(0.5)
    x.add_(1.0)
    return x.asnumpy()


def inplace_pynative_equal() -> NDArray:
    x = Tensor(normal(4))
    x.copy_(x * 0.5)
    x.copy_(x + 1.0)
    return x.asnumpy()


def inplace_augmented() -> NDArray:
    total = ops.zeros(4)
    alias = total
    total += 1
    return alias.asnumpy()


def inplace_augmented_equal() -> NDArray:
    total = ops.zeros(4)
    alias = total
    total.copy_(total + 1)
    return alias.asnumpy()


def copy_into_view() -> NDArray:
    x = ops.zeros((2, 3))
    x[:, 1].copy_(ops.ones(2))
    return x.asnumpy()


def copy_into_view_equal() -> NDArray:
    x = ops.zeros((2, 3))
    x[:, 1] = ops.ones(2)
    return x.asnumpy()


def parameter_aliasing() -> NDArray:
    start = Tensor(normal(4))
    weight = ms.Parameter(start)
    start[0] = 9.0
    return weight.asnumpy()


def from_numpy_sharing() -> dict[str, NDArray]:
    array, other = normal(4), normal(4)
    x, y = Tensor(array), Tensor.from_numpy(other)
    array[0] = other[0] = 9.0
    return {"copied": x.asnumpy(), "shared": y.asnumpy()}


def numpy_int_default() -> dict[str, NDArray]:
    values = {"int": [1, 2], "float": [1.0, 2.0], "double": np.array([1.0]), "bool": [True]}
    return {name: Tensor(value).asnumpy() for name, value in values.items()}


def full_type() -> NDArray:
    return ops.full((2, 3), 0.5).asnumpy()


def full_type_equal() -> NDArray:
    return ops.full((2, 3), 0.5, dtype=ms.float32).asnumpy()


def index_types() -> dict[str, NDArray]:
    x = Tensor([3.0, 1.0, 2.0])
    return {
        "topk": ops.topk(x, 2)[1].asnumpy(),
        "argsort": ops.argsort(x).asnumpy(),
        "argmin": ops.argmin(x).asnumpy(),
        "bincount": ops.bincount(Tensor([0, 1, 1])).asnumpy(),
        "cumsum": ops.cumsum(Tensor([1, 2], ms.int32), 0).asnumpy(),
    }


def index_types_equal() -> dict[str, NDArray]:
    x = Tensor([3.0, 1.0, 2.0])
    return {
        "topk": ops.topk(x, 2)[1].long().asnumpy(),
        "argsort": ops.argsort(x).long().asnumpy(),
        "argmin": ops.argmin(x).long().asnumpy(),
        "bincount": ops.bincount(Tensor([0, 1, 1])).long().asnumpy(),
        "cumsum": ops.cumsum(Tensor([1, 2], ms.int32), 0, ms.int64).asnumpy(),
    }


def scalar_promotion() -> dict[str, NDArray]:
    half, single = ops.ones(2, ms.float16), ops.ones(2)
    return {
        "half": (half + Tensor(2.0)).asnumpy(),
        "single": (single + Tensor(2.0, ms.float64)).asnumpy(),
    }


def scalar_promotion_equal() -> dict[str, NDArray]:
    half, single = ops.ones(2, ms.float16), ops.ones(2)
    return {
        "half": (half + Tensor(2.0).astype(half.dtype)).asnumpy(),
        "single": (single + Tensor(2.0, ms.float64).astype(single.dtype)).asnumpy(),
    }


def float16_scalar() -> NDArray:
    return (Tensor(normal(64)).half() * 1e-3).asnumpy()


def float16_scalar_equal() -> NDArray:
    x = Tensor(normal(64)).half()
    return (x.float() * 1e-3).half().asnumpy()


def mean_of_integers() -> NDArray:
    return Tensor([1, 2]).mean().asnumpy()


def mean_of_integers_equal() -> NDArray:
    return Tensor([1, 2]).float().mean().asnumpy()


def integer_division_by_zero() -> NDArray:
    return (Tensor([6, 1]) // Tensor([2, 0])).asnumpy()


def integer_division_by_zero_equal() -> NDArray:
    count = Tensor([2, 0])
    return (Tensor([6, 1]) // count.clamp(min=1)).asnumpy()


def division_of_integers() -> dict[str, NDArray]:
    a, b = Tensor([7, -7]), Tensor([2, 2])
    return {"/": (a / b).asnumpy(), "//": (a // b).asnumpy(), "%": (a % b).asnumpy()}


def variance_ddof() -> dict[str, NDArray]:
    x = Tensor(normal(4))
    return {"var": x.var().asnumpy(), "std": x.std().asnumpy()}


def variance_ddof_equal() -> dict[str, NDArray]:
    x = Tensor(normal(4))
    return {"var": x.var(ddof=1).asnumpy(), "std": x.std(ddof=1).asnumpy()}


def std_cpu() -> NDArray:
    return mint.std(Tensor(normal(4))).asnumpy()


def std_cpu_equal() -> NDArray:
    return ops.std(Tensor(normal(4)), ddof=1).asnumpy()


def norm_positional() -> NDArray:
    return Tensor(normal(3, 4)).norm(1).asnumpy()


def norm_positional_equal() -> NDArray:
    return Tensor(normal(3, 4)).reshape(-1).norm(1).asnumpy()


def norm_gradient_zero() -> NDArray:
    return gradient(lambda x: x.norm(), [0.0, 0.0])


def norm_gradient_zero_equal() -> NDArray:
    return gradient(lambda x: ops.sqrt((x * x).sum() + 1e-12), [0.0, 0.0])


def std_gradient_constant() -> NDArray:
    return gradient(lambda x: x.std(ddof=1), [1.0, 1.0, 1.0])


def std_gradient_constant_equal() -> NDArray:
    return gradient(lambda x: ops.sqrt(x.var(ddof=1) + 1e-12), [1.0, 1.0, 1.0])


def cumprod_gradient_zero() -> NDArray:
    return gradient(lambda x: x.cumprod(0).sum(), [1.0, 0.0, 3.0])


def cumprod_gradient_zero_equal() -> NDArray:
    return gradient(lambda x: x[0] + x[:2].prod() + x.prod(), [1.0, 0.0, 3.0])


def hardtanh_gradient() -> NDArray:
    return gradient(lambda x: ops.hardtanh(x).sum() + ops.relu6(x).sum(), [-1.0, 0.5, 1.0, 6.0])


def hardtanh_gradient_equal() -> NDArray:
    def clip(x: Tensor, low: float, high: float) -> Tensor:
        return ops.where((x > low) & (x < high), x, ops.stop_gradient(ops.clamp(x, low, high)))

    return gradient(lambda x: (clip(x, -1.0, 1.0) + clip(x, 0.0, 6.0)).sum(), [-1.0, 0.5, 1.0, 6.0])


def nan_relu() -> NDArray:
    return ops.relu(Tensor(NAN)).asnumpy()


def nan_relu_equal() -> NDArray:
    return ops.isfinite(Tensor(NAN)).asnumpy()


def nan_max() -> NDArray:
    return Tensor(NAN).max().asnumpy()


def nan_max_equal() -> NDArray:
    x = Tensor(NAN)
    return x[~x.isnan()].max().asnumpy()


def softmax_all_masked() -> NDArray:
    return ops.softmax(ops.full((1, 3), float("-inf"), dtype=ms.float32), -1).asnumpy()


def logsigmoid_tail() -> NDArray:
    return ops.logsigmoid(Tensor([-100.0, 1.0])).asnumpy()


def logsigmoid_tail_equal() -> NDArray:
    return -ops.softplus(-Tensor([-100.0, 1.0])).asnumpy()


def xlogy_zero() -> NDArray:
    x = Tensor([0.0, 0.5])
    return ops.xlogy(x, x).asnumpy()


def xlogy_zero_equal() -> NDArray:
    x = Tensor([0.0, 0.5])
    return (x * ops.log(ops.where(x == 0, 1.0, x))).asnumpy()


def small_arguments() -> dict[str, NDArray]:
    x = Tensor([1e-8, 1e-7, 1e-6])
    return {"expm1": ops.expm1(x).asnumpy(), "log1p": ops.log1p(x).asnumpy()}


def small_arguments_equal() -> dict[str, NDArray]:
    x = Tensor([1e-8, 1e-7, 1e-6])
    return {"expm1": (x + x * x / 2).asnumpy(), "log1p": (x - x * x / 2).asnumpy()}


def erfinv_accuracy() -> NDArray:
    return ops.erfinv(Tensor([-0.999, 0.5, 0.999])).asnumpy()


def cumsum_accuracy() -> NDArray:
    return ops.full((1_000_000,), 0.1, dtype=ms.float32).cumsum(0)[-1].asnumpy()


def cumsum_accuracy_equal() -> NDArray:
    x = ops.full((1_000_000,), 0.1, dtype=ms.float32)
    return x.double().cumsum(0).float()[-1].asnumpy()


def topk_ties() -> NDArray:
    return ops.topk(Tensor([2.0, 1, 2, 1, 2, 1, 2, 1]), 6)[1].asnumpy()


def one_hot_range() -> NDArray:
    return ops.one_hot(Tensor([0, 3]), 3).asnumpy()


def gather_meaning() -> NDArray:
    x, index = Tensor(normal(3, 4)), Tensor([[0, 1, 2, 0]])
    return ops.gather(x, index, 0).asnumpy()


def gather_meaning_equal() -> NDArray:
    x, index = Tensor(normal(3, 4)), Tensor([[0, 1, 2, 0]])
    return ops.gather_elements(x, 0, index).asnumpy()


def unique_order() -> NDArray:
    return ops.unique(Tensor([3, 1, 3, 2]))[0].asnumpy()


def unique_order_equal() -> NDArray:
    return ops.sort(ops.unique(Tensor([3, 1, 3, 2]))[0])[0].asnumpy()


def flatten_function() -> NDArray:
    return ops.flatten(Tensor(normal(2, 3, 4))).asnumpy()


def flatten_function_equal() -> NDArray:
    return ops.flatten(Tensor(normal(2, 3, 4)), start_dim=0).asnumpy()


def repeat_tiles() -> NDArray:
    return Tensor(normal(2, 3)).repeat(2, 1).asnumpy()


def repeat_tiles_equal() -> NDArray:
    return ops.tile(Tensor(normal(2, 3)), (2, 1)).asnumpy()


def max_over_axis() -> Any:
    return [Tensor(normal(3, 4)).max(axis=1).asnumpy()]


def max_over_axis_equal() -> NDArray:
    return Tensor(normal(3, 4)).amax(axis=1).asnumpy()


def tensor_size() -> int:
    return Tensor(normal(3, 4)).size()[0]


def tensor_size_equal() -> int:
    return Tensor(normal(3, 4)).shape[0]


def concatenate_types() -> NDArray:
    return ops.cat([Tensor([1.5]), Tensor([1, 2])]).asnumpy()


def concatenate_types_equal() -> NDArray:
    return ops.cat([Tensor([1.5]), Tensor([1, 2]).float()]).asnumpy()


def view_of_transposed() -> NDArray:
    return Tensor(normal(2, 3)).T.view(6).asnumpy()


def view_of_transposed_equal() -> NDArray:
    return Tensor(normal(2, 3)).T.reshape(6).asnumpy()


def tanh_saturation() -> dict[str, NDArray]:
    values = [4.9, 5.1, 6.0]
    tail = 1 - ops.tanh(Tensor(values))
    return {"tail": tail.asnumpy(), "gradient": gradient(lambda x: ops.tanh(x).sum(), values)}


def tanh_saturation_equal() -> dict[str, NDArray]:
    def tanh(x: Tensor) -> Tensor:
        return 2 * ops.sigmoid(2 * x) - 1

    values = [4.9, 5.1, 6.0]
    tail = 1 - tanh(Tensor(values))
    return {"tail": tail.asnumpy(), "gradient": gradient(lambda x: tanh(x).sum(), values)}
