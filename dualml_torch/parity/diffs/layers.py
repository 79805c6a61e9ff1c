"""Probes of layers in PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn, tensor

from dualml.parity.diffs.inputs import normal


def with_fixed_parameters(layer: nn.Module) -> nn.Module:
    """Set a layer's parameters to the same numbers on both sides; return the layer."""
    for number, (_, param) in enumerate(sorted(layer.named_parameters())):
        param.data = 0.5 * tensor(normal(*param.shape, seed=number))
    return layer


def gradient(function: Callable[[torch.Tensor], torch.Tensor], x: NDArray) -> NDArray:
    inputs = tensor(x, requires_grad=True)
    function(inputs).sum().backward()
    return inputs.grad.numpy()


def gelu() -> NDArray:
    layer = nn.GELU()
    return layer(tensor(normal(4, 16))).numpy()


def leaky_relu_slope() -> NDArray:
    return nn.LeakyReLU()(tensor(normal(4, 16))).numpy()


def leaky_relu_gradient() -> NDArray:
    return gradient(nn.LeakyReLU(0.01), np.zeros(4, np.float32))


def hardswish_gradient() -> NDArray:
    return gradient(nn.Hardswish(), np.linspace(-4, 4, 9, dtype=np.float32))


def maxpool_nan() -> NDArray:
    x = np.array([[[[1, np.nan], [2, 3]]]], np.float32)
    return nn.MaxPool2d(2, stride=2)(tensor(x)).numpy()


def mish_overflow() -> NDArray:
    x = np.array([1, 10, 50, 100], np.float32)
    return nn.Mish()(tensor(x)).numpy()


def tanh_accuracy() -> NDArray:
    x = np.linspace(-6, 6, 4001, dtype=np.float32)
    return nn.Tanh()(tensor(x)).numpy()


def selu_gradient() -> NDArray:
    x = tensor(np.linspace(-3, 3, 24, dtype=np.float32)).requires_grad_()
    nn.SELU()(x).sum().backward()
    return x.grad.numpy()


def rrelu_evaluation() -> float:
    x = -tensor(np.ones(1000, np.float32))
    layer = nn.RReLU().eval()
    return float(layer(x).max() - layer(x).min())


def softmax_axis() -> NDArray:
    return nn.Softmax()(tensor(normal(2, 3, 8))).numpy()


def softmax_axis_equal() -> NDArray:
    return nn.Softmax(dim=-1)(tensor(normal(2, 3, 8))).numpy()


def layernorm_eps() -> NDArray:
    layer = nn.LayerNorm(16)
    return layer(tensor(1e-3 * normal(4, 16))).detach().numpy()


def layernorm_axes() -> NDArray:
    layer = nn.LayerNorm((3, 8, 8))
    return layer(tensor(normal(2, 3, 8, 8))).detach().numpy()


def batchnorm_momentum() -> NDArray:
    layer = nn.BatchNorm2d(3, momentum=0.1)
    layer(tensor(normal(2, 3, 8, 8)))
    return layer.running_mean.numpy()


def batchnorm_variance() -> NDArray:
    layer = nn.BatchNorm1d(16)
    layer(tensor(normal(4, 16)))
    return layer.running_var.numpy()


def batchnorm_one_sample() -> NDArray:
    layer = nn.BatchNorm1d(4)
    for batch in tensor(normal(5, 4)).split(2):
        layer(batch)
    return layer.running_var.numpy()


def batchnorm_one_sample_equal() -> NDArray:
    layer = nn.BatchNorm1d(4)
    for batch in tensor(normal(5, 4))[:4].split(2):
        layer(batch)
    return layer.running_var.numpy()


def instance_norm() -> NDArray:
    return nn.InstanceNorm2d(3)(tensor(normal(2, 3, 8, 8))).numpy()


def l2_normalize() -> NDArray:
    return F.normalize(tensor(1e-3 * normal(4, 16)), dim=1).numpy()


def cosine_similarity() -> NDArray:
    a, b = 1e-5 * normal(4, 16), 1e-5 * normal(4, 16, seed=1)
    return F.cosine_similarity(tensor(a), tensor(b)).numpy()


def lrn() -> NDArray:
    return nn.LocalResponseNorm(5)(tensor(normal(1, 8, 4, 4))).numpy()


def dropout_argument() -> float:
    dropped = nn.Dropout(0.2)(torch.ones(100_000))
    return float((dropped == 0).float().mean())


def conv_padding() -> NDArray:
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, bias=False))
    return layer(tensor(normal(2, 3, 8, 8))).detach().numpy()


def conv_bias() -> int:
    return len(list(nn.Conv2d(3, 4, 3).parameters()))


def conv_same_stride() -> NDArray:
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False))
    return layer(tensor(normal(2, 3, 8, 8))).detach().numpy()


def conv_padding_pair() -> NDArray:
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, padding=(1, 0), bias=False))
    return layer(tensor(normal(2, 3, 8, 8))).detach().numpy()


def conv_float64() -> NDArray:
    layer = nn.Conv2d(3, 4, 3, bias=False, dtype=torch.float64)
    return layer(tensor(normal(2, 3, 8, 8)).double()).detach().numpy()


def conv_float64_equal() -> NDArray:
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, bias=False))
    return layer(tensor(normal(2, 3, 8, 8))).detach().numpy()


def conv1d_weight() -> NDArray:
    return with_fixed_parameters(nn.Conv1d(3, 4, 5, bias=False)).weight.detach().numpy()


def conv_transpose_size() -> NDArray:
    layer = with_fixed_parameters(nn.ConvTranspose2d(3, 4, 3, stride=2, bias=False))
    return layer(tensor(normal(2, 3, 8, 8))).detach().numpy()


def conv_transpose_output_padding() -> NDArray:
    layer = nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1, bias=False)
    return with_fixed_parameters(layer)(tensor(normal(2, 3, 8, 8))).detach().numpy()


def maxpool_stride() -> NDArray:
    return nn.MaxPool2d(2)(tensor(normal(2, 3, 8, 8))).numpy()


def avgpool_functional() -> NDArray:
    return F.avg_pool2d(tensor(normal(2, 3, 8, 8)), 2).numpy()


def avgpool_same() -> NDArray:
    return nn.AvgPool2d(3, stride=1, padding=1)(tensor(normal(2, 3, 8, 8))).numpy()


def pool_ceil_mode() -> NDArray:
    return nn.MaxPool2d(3, stride=2, ceil_mode=True)(tensor(normal(2, 3, 8, 8))).numpy()


def upsample_scale() -> NDArray:
    layer = nn.Upsample(scale_factor=2.0, mode="bilinear")
    return layer(tensor(normal(1, 2, 4, 4))).numpy()


def bicubic() -> NDArray:
    x = tensor(normal(1, 2, 4, 4))
    return F.interpolate(x, size=(7, 7), mode="bicubic").numpy()


def bicubic_equal() -> NDArray:
    x = tensor(normal(1, 2, 4, 4))
    return F.interpolate(x, size=(7, 7), mode="bicubic", align_corners=True).numpy()


def embedding_padding() -> NDArray:
    layer = nn.Embedding(6, 3, padding_idx=0)
    layer(tensor([0, 2, 0, 5])).sum().backward()
    return layer.weight.grad.numpy()


def embedding_negative() -> NDArray:
    table = tensor(normal(6, 3))
    return F.embedding(tensor([0, -1]), table).numpy()


def embedding_negative_equal() -> NDArray:
    table = tensor(normal(6, 3))
    return F.embedding(tensor([0, -1]) % 6, table).numpy()


def lstm_gates() -> NDArray:
    layer = with_fixed_parameters(nn.LSTM(4, 3, num_layers=2, bidirectional=True))
    return layer(tensor(normal(5, 2, 4)))[0].detach().numpy()


def gru_gates() -> NDArray:
    layer = with_fixed_parameters(nn.GRU(4, 3, num_layers=2, bidirectional=True))
    return layer(tensor(normal(5, 2, 4)))[0].detach().numpy()


def cell_state() -> NDArray:
    return with_fixed_parameters(nn.GRUCell(4, 3))(tensor(normal(2, 4))).detach().numpy()


def multihead_attention() -> NDArray:
    layer, x = with_fixed_parameters(nn.MultiheadAttention(8, 2)), tensor(normal(5, 2, 8))
    later = np.triu(np.ones((5, 5), bool), 1)
    return layer(x, x, x, attn_mask=tensor(later))[0].detach().numpy()


def transformer_layer() -> NDArray:
    layer = with_fixed_parameters(nn.TransformerEncoderLayer(8, 2, dim_feedforward=16).eval())
    return layer(tensor(normal(5, 2, 8))).detach().numpy()


def mint_nn() -> NDArray:
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3))
    return layer(tensor(normal(2, 3, 8, 8))).detach().numpy()
