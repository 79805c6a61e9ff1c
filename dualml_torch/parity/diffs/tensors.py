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
    x = torch.tensor(values, requires_grad=True)
    f(x).backward()
    return x.grad.numpy()


def inplace_pynative() -> NDArray:
    x = torch.tensor(normal(4))
    x.mul_(0.5)
    x.add_(1.0)
    return x.numpy()


def inplace_augmented() -> NDArray:
    total = torch.zeros(4)
    alias = total
    total += 1
    return alias.numpy()


def copy_into_view() -> NDArray:
    x = torch.zeros(2, 3)
    x[:, 1].copy_(torch.ones(2))
    return x.numpy()


def parameter_aliasing() -> NDArray:
    start = torch.tensor(normal(4))
    weight = nn.Parameter(start)
    start[0] = 9.0
    return weight.detach().numpy()


def parameter_aliasing_equal() -> NDArray:
    start = torch.tensor(normal(4))
    weight = nn.Parameter(start.clone())
    start[0] = 9.0
    return weight.detach().numpy()


def from_numpy_sharing() -> dict[str, NDArray]:
    array, other = normal(4), normal(4)
    x, y = torch.tensor(array), torch.from_numpy(other)
    array[0] = other[0] = 9.0
    return {"copied": x.numpy(), "shared": y.numpy()}


def numpy_int_default() -> dict[str, NDArray]:
    values = {"int": [1, 2], "float": [1.0, 2.0], "double": np.array([1.0]), "bool": [True]}
    return {name: torch.tensor(value).numpy() for name, value in values.items()}


def full_type() -> NDArray:
    return torch.full((2, 3), 0.5).numpy()


def index_types() -> dict[str, NDArray]:
    x = torch.tensor([3.0, 1.0, 2.0])
    return {
        "topk": torch.topk(x, 2)[1].numpy(),
        "argsort": torch.argsort(x).numpy(),
        "argmin": torch.argmin(x).numpy(),
        "bincount": torch.bincount(torch.tensor([0, 1, 1])).numpy(),
        "cumsum": torch.cumsum(torch.tensor([1, 2], dtype=torch.int32), 0).numpy(),
    }


def scalar_promotion() -> dict[str, NDArray]:
    half, single = torch.ones(2, dtype=torch.float16), torch.ones(2)
    return {
        "half": (half + torch.tensor(2.0)).numpy(),
        "single": (single + torch.tensor(2.0, dtype=torch.float64)).numpy(),
    }


def float16_scalar() -> NDArray:
    return (torch.tensor(normal(64)).half() * 1e-3).numpy()


def float16_scalar_equal() -> NDArray:
    x = torch.tensor(normal(64)).half()
    return (x.float() * 1e-3).half().numpy()


def mean_of_integers() -> NDArray:
    return torch.tensor([1, 2]).mean().numpy()


def mean_of_integers_equal() -> NDArray:
    return torch.tensor([1, 2]).float().mean().numpy()


def integer_division_by_zero() -> NDArray:
    return (torch.tensor([6, 1]) // torch.tensor([2, 0])).numpy()


def integer_division_by_zero_equal() -> NDArray:
    count = torch.tensor([2, 0])
    return (torch.tensor([6, 1]) // count.clamp(min=1)).numpy()


def division_of_integers() -> dict[str, NDArray]:
    a, b = torch.tensor([7, -7]), torch.tensor([2, 2])
    return {"/": (a / b).numpy(), "//": (a // b).numpy(), "%": (a % b).numpy()}


def variance_ddof() -> dict[str, NDArray]:
    x = torch.tensor(normal(4))
    return {"var": x.var().numpy(), "std": x.std().numpy()}


def std_cpu() -> NDArray:
    return torch.std(torch.tensor(normal(4))).numpy()


def norm_positional() -> NDArray:
    return torch.tensor(normal(3, 4)).norm(1).numpy()


def norm_gradient_zero() -> NDArray:
    return gradient(lambda x: x.norm(), [0.0, 0.0])


def std_gradient_constant() -> NDArray:
    return gradient(lambda x: x.std(), [1.0, 1.0, 1.0])


def cumprod_gradient_zero() -> NDArray:
    return gradient(lambda x: x.cumprod(0).sum(), [1.0, 0.0, 3.0])


def hardtanh_gradient() -> NDArray:
    return gradient(lambda x: F.hardtanh(x).sum() + F.relu6(x).sum(), [-1.0, 0.5, 1.0, 6.0])


def nan_relu() -> NDArray:
    return torch.relu(torch.tensor(NAN)).numpy()


def nan_relu_equal() -> NDArray:
    return torch.isfinite(torch.tensor(NAN)).numpy()


def nan_max() -> NDArray:
    return torch.tensor(NAN).max().numpy()


def nan_max_equal() -> NDArray:
    x = torch.tensor(NAN)
    return x[~x.isnan()].max().numpy()


def softmax_all_masked() -> NDArray:
    return torch.softmax(torch.full((1, 3), float("-inf")), -1).numpy()


def softmax_all_masked_equal() -> NDArray:
    return torch.softmax(torch.full((1, 3), float("-inf")), -1).nan_to_num(0.0).numpy()


def logsigmoid_tail() -> NDArray:
    return F.logsigmoid(torch.tensor([-100.0, 1.0])).numpy()


def xlogy_zero() -> NDArray:
    x = torch.tensor([0.0, 0.5])
    return torch.xlogy(x, x).numpy()


def small_arguments() -> dict[str, NDArray]:
    x = torch.tensor([1e-8, 1e-7, 1e-6])
    return {"expm1": torch.expm1(x).numpy(), "log1p": torch.log1p(x).numpy()}


def erfinv_accuracy() -> NDArray:
    return torch.erfinv(torch.tensor([-0.999, 0.5, 0.999])).numpy()


def cumsum_accuracy() -> NDArray:
    return torch.full((1_000_000,), 0.1).cumsum(0)[-1].numpy()


def topk_ties() -> NDArray:
    return torch.tensor([2.0, 1, 2, 1, 2, 1, 2, 1]).topk(6)[1].numpy()


def topk_ties_equal() -> NDArray:
    x = torch.tensor([2.0, 1, 2, 1, 2, 1, 2, 1])
    return x.sort(descending=True, stable=True)[1][:6].numpy()


def one_hot_range() -> NDArray:
    return F.one_hot(torch.tensor([0, 3]), 3).numpy()


def one_hot_range_equal() -> NDArray:
    return (torch.tensor([0, 3])[:, None] == torch.arange(3)).long().numpy()


def gather_meaning() -> NDArray:
    x, index = torch.tensor(normal(3, 4)), torch.tensor([[0, 1, 2, 0]])
    return torch.gather(x, 0, index).numpy()


def unique_order() -> NDArray:
    return torch.unique(torch.tensor([3, 1, 3, 2])).numpy()


def flatten_function() -> NDArray:
    return torch.flatten(torch.tensor(normal(2, 3, 4))).numpy()


def repeat_tiles() -> NDArray:
    return torch.tensor(normal(2, 3)).repeat(2, 1).numpy()


def max_over_axis() -> Any:
    return [x.numpy() for x in torch.tensor(normal(3, 4)).max(dim=1)]


def max_over_axis_equal() -> NDArray:
    return torch.tensor(normal(3, 4)).amax(dim=1).numpy()


def tensor_size() -> int:
    return torch.tensor(normal(3, 4)).size()[0]


def concatenate_types() -> NDArray:
    return torch.cat([torch.tensor([1.5]), torch.tensor([1, 2])]).numpy()


def view_of_transposed() -> NDArray:
    return torch.tensor(normal(2, 3)).T.view(6).numpy()


def view_of_transposed_equal() -> NDArray:
    return torch.tensor(normal(2, 3)).T.reshape(6).numpy()


def tanh_saturation() -> dict[str, NDArray]:
    values = [4.9, 5.1, 6.0]
    tail = 1 - torch.tanh(torch.tensor(values))
    return {"tail": tail.numpy(), "gradient": gradient(lambda x: torch.tanh(x).sum(), values)}
