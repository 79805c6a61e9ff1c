"""Probes of layers in MindSpore."""

from __future__ import annotations

from collections.abc import Callable

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops
from numpy.typing import NDArray

from dualml.parity.diffs.inputs import normal


def with_fixed_parameters(layer: nn.Cell) -> nn.Cell:
    """Set a layer's parameters to the same numbers on both sides; return the layer."""
    for number, param in enumerate(sorted(layer.trainable_params(), key=lambda one: one.name)):
        param.set_data(0.5 * Tensor(normal(*param.shape, seed=number)))
    return layer


def gradient(function: Callable[[Tensor], Tensor], x: NDArray) -> NDArray:
    return ms.grad(lambda inputs: function(inputs).sum())(Tensor(x)).asnumpy()


def gelu() -> NDArray:
    layer = nn.GELU()
    return layer(Tensor(normal(4, 16))).asnumpy()


def gelu_equal() -> NDArray:
    layer = nn.GELU(approximate=False)
    return layer(Tensor(normal(4, 16))).asnumpy()


def leaky_relu_slope() -> NDArray:
    return nn.LeakyReLU()(Tensor(normal(4, 16))).asnumpy()


def leaky_relu_slope_equal() -> NDArray:
    return nn.LeakyReLU(0.01)(Tensor(normal(4, 16))).asnumpy()


def leaky_relu_gradient() -> NDArray:
    return gradient(nn.LeakyReLU(0.01), np.zeros(4, np.float32))


def leaky_relu_gradient_equal() -> NDArray:
    return gradient(lambda x: ops.where(x > 0, x, 0.01 * x), np.zeros(4, np.float32))


def hardswish_gradient() -> NDArray:
    return gradient(nn.HSwish(), np.linspace(-4, 4, 9, dtype=np.float32))


def hardswish_gradient_equal() -> NDArray:
    x = np.linspace(-4, 4, 9, dtype=np.float32)
    return gradient(lambda x: x * (6 - ops.relu(6 - ops.relu(x + 3))) / 6, x)


def maxpool_nan() -> NDArray:
    x = np.array([[[[1, np.nan], [2, 3]]]], np.float32)
    return nn.MaxPool2d(2, stride=2)(Tensor(x)).asnumpy()


def mish_overflow() -> NDArray:
    x = np.array([1, 10, 50, 100], np.float32)
    return nn.Mish()(Tensor(x)).asnumpy()


def mish_overflow_equal() -> NDArray:
    x = Tensor(np.array([1, 10, 50, 100], np.float32))
    return (x * ops.tanh(ops.softplus(x))).asnumpy()


def tanh_accuracy() -> NDArray:
    x = np.linspace(-6, 6, 4001, dtype=np.float32)
    return nn.Tanh()(Tensor(x)).asnumpy()


def tanh_accuracy_equal() -> NDArray:
    x = np.linspace(-6, 6, 4001, dtype=np.float32)
    return nn.Tanh()(Tensor(x).astype(ms.float64)).astype(ms.float32).asnumpy()


def selu_gradient() -> NDArray:
    x = Tensor(np.linspace(-3, 3, 24, dtype=np.float32))
    return ms.grad(lambda x: nn.SeLU()(x).sum())(x).asnumpy()


def selu_gradient_equal() -> NDArray:
    def selu(x: Tensor) -> Tensor:
        below = 1.6732632423543772 * (ops.exp(ops.minimum(x, 0)) - 1)
        return 1.0507009873554805 * ops.where(x > 0, x, below)

    x = Tensor(np.linspace(-3, 3, 24, dtype=np.float32))
    return ms.grad(lambda x: selu(x).sum())(x).asnumpy()


def rrelu_evaluation() -> float:
    x = -Tensor(np.ones(1000, np.float32))
    layer = nn.RReLU().set_train(False)
    return float(layer(x).max() - layer(x).min())


def rrelu_evaluation_equal() -> float:
    x = -Tensor(np.ones(1000, np.float32))
    layer = nn.LeakyReLU((1 / 8 + 1 / 3) / 2)
    return float(layer(x).max() - layer(x).min())


def softmax_axis() -> NDArray:
    return nn.Softmax()(Tensor(normal(2, 3, 8))).asnumpy()


def layernorm_eps() -> NDArray:
    layer = nn.LayerNorm((16,))
    return layer(Tensor(1e-3 * normal(4, 16))).asnumpy()


def layernorm_eps_equal() -> NDArray:
    layer = nn.LayerNorm((16,), epsilon=1e-5)
    return layer(Tensor(1e-3 * normal(4, 16))).asnumpy()


def layernorm_axes() -> NDArray:
    layer = nn.LayerNorm((3, 8, 8))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def layernorm_axes_equal() -> NDArray:
    layer = nn.LayerNorm((3, 8, 8), begin_norm_axis=1, begin_params_axis=1, epsilon=1e-5)
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def batchnorm_momentum() -> NDArray:
    layer = nn.BatchNorm2d(3, momentum=0.1).set_train()
    layer(Tensor(normal(2, 3, 8, 8)))
    return layer.moving_mean.asnumpy()


def batchnorm_momentum_equal() -> NDArray:
    layer = nn.BatchNorm2d(3, momentum=1 - 0.1).set_train()
    layer(Tensor(normal(2, 3, 8, 8)))
    return layer.moving_mean.asnumpy()


def batchnorm_variance() -> NDArray:
    layer = nn.BatchNorm1d(16).set_train()
    layer(Tensor(normal(4, 16)))
    return layer.moving_variance.asnumpy()


def batchnorm_one_sample() -> NDArray:
    layer = nn.BatchNorm1d(4).set_train()
    for batch in Tensor(normal(5, 4)).split(2):
        layer(batch)
    return layer.moving_variance.asnumpy()


def batchnorm_one_sample_equal() -> NDArray:
    layer = nn.BatchNorm1d(4).set_train()
    for batch in Tensor(normal(5, 4))[:4].split(2):
        layer(batch)
    return layer.moving_variance.asnumpy()


def instance_norm() -> NDArray:
    return nn.InstanceNorm2d(3)(Tensor(normal(2, 3, 8, 8))).asnumpy()


def instance_norm_equal() -> NDArray:
    return nn.GroupNorm(3, 3)(Tensor(normal(2, 3, 8, 8))).asnumpy()


def l2_normalize() -> NDArray:
    return ops.L2Normalize(axis=1)(Tensor(1e-3 * normal(4, 16))).asnumpy()


def l2_normalize_equal() -> NDArray:
    return ops.L2Normalize(axis=1, epsilon=1e-24)(Tensor(1e-3 * normal(4, 16))).asnumpy()


def cosine_similarity() -> NDArray:
    a, b = 1e-5 * normal(4, 16), 1e-5 * normal(4, 16, seed=1)
    return ops.cosine_similarity(Tensor(a), Tensor(b)).asnumpy()


def cosine_similarity_equal() -> NDArray:
    a, b = 1e-5 * normal(4, 16), 1e-5 * normal(4, 16, seed=1)
    return ops.cosine_similarity(Tensor(a), Tensor(b), eps=1e-16).asnumpy()


def lrn() -> NDArray:
    return nn.LRN(5)(Tensor(normal(1, 8, 4, 4))).asnumpy()


def lrn_equal() -> NDArray:
    layer = nn.LRN(depth_radius=2, bias=1.0, alpha=1e-4 / 5, beta=0.75)
    return layer(Tensor(normal(1, 8, 4, 4))).asnumpy()


def dropout_argument() -> float:
    dropped = nn.Dropout(0.2).set_train()(ops.ones(100_000))
    return float((dropped.asnumpy() == 0).mean())


def dropout_argument_equal() -> float:
    dropped = nn.Dropout(p=0.2).set_train()(ops.ones(100_000))
    return float((dropped.asnumpy() == 0).mean())


def conv_padding() -> NDArray:
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def conv_padding_equal() -> NDArray:
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, pad_mode="pad", padding=0))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def conv_bias() -> int:
    return len(nn.Conv2d(3, 4, 3).trainable_params())


def conv_bias_equal() -> int:
    return len(nn.Conv2d(3, 4, 3, has_bias=True).trainable_params())


def conv_same_stride() -> NDArray:
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, stride=2, pad_mode="same"))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def conv_same_stride_equal() -> NDArray:
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, stride=2, pad_mode="pad", padding=1))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def conv_padding_pair() -> NDArray:
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, pad_mode="pad", padding=(1, 0)))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def conv_padding_pair_equal() -> NDArray:
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, pad_mode="pad", padding=(1, 1, 0, 0)))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def conv_float64() -> NDArray:
    layer = nn.Conv2d(3, 4, 3, pad_mode="pad", dtype=ms.float64)
    return layer(Tensor(normal(2, 3, 8, 8)).astype(ms.float64)).asnumpy()


def conv_float64_equal() -> NDArray:
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, pad_mode="pad"))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def conv1d_weight() -> NDArray:
    return nn.Conv1d(3, 4, 5).weight.asnumpy()


def conv1d_weight_equal() -> NDArray:
    layer = nn.Conv1d(3, 4, 5)
    layer.weight.set_data(0.5 * Tensor(normal(4, 3, 5)).expand_dims(2))
    return layer.weight.squeeze(2).asnumpy()


def conv_transpose_size() -> NDArray:
    layer = with_fixed_parameters(nn.Conv2dTranspose(3, 4, 3, stride=2))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def conv_transpose_size_equal() -> NDArray:
    layer = with_fixed_parameters(nn.Conv2dTranspose(3, 4, 3, stride=2, pad_mode="pad", padding=0))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def conv_transpose_output_padding() -> NDArray:
    layer = nn.Conv2dTranspose(3, 4, 3, stride=2, pad_mode="pad", padding=1, output_padding=1)
    return with_fixed_parameters(layer)(Tensor(normal(2, 3, 8, 8))).asnumpy()


def conv_transpose_output_padding_equal() -> NDArray:
    layer = nn.Conv2dTranspose(3, 4, 3, stride=2, pad_mode="pad", padding=(1, 0, 1, 0))
    return with_fixed_parameters(layer)(Tensor(normal(2, 3, 8, 8))).asnumpy()


def maxpool_stride() -> NDArray:
    return nn.MaxPool2d(2)(Tensor(normal(2, 3, 8, 8))).asnumpy()


def maxpool_stride_equal() -> NDArray:
    return nn.MaxPool2d(2, stride=2)(Tensor(normal(2, 3, 8, 8))).asnumpy()


def avgpool_functional() -> NDArray:
    return ops.avg_pool2d(Tensor(normal(2, 3, 8, 8)), 2).asnumpy()


def avgpool_functional_equal() -> NDArray:
    return ops.avg_pool2d(Tensor(normal(2, 3, 8, 8)), 2, stride=2).asnumpy()


def avgpool_same() -> NDArray:
    layer = nn.AvgPool2d(3, stride=1, pad_mode="same")
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def avgpool_same_equal() -> NDArray:
    layer = nn.AvgPool2d(3, stride=1, pad_mode="pad", padding=1)
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def pool_ceil_mode() -> NDArray:
    layer = nn.MaxPool2d(3, stride=2, ceil_mode=True)
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def pool_ceil_mode_equal() -> NDArray:
    layer = nn.MaxPool2d(3, stride=2, pad_mode="pad", ceil_mode=True)
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def upsample_scale() -> NDArray:
    layer = nn.Upsample(scale_factor=2.0, mode="bilinear")
    return layer(Tensor(normal(1, 2, 4, 4))).asnumpy()


def upsample_scale_equal() -> NDArray:
    layer = nn.Upsample(scale_factor=2.0, mode="bilinear", recompute_scale_factor=True)
    return layer(Tensor(normal(1, 2, 4, 4))).asnumpy()


def bicubic() -> NDArray:
    x = Tensor(normal(1, 2, 4, 4))
    return ops.interpolate(x, size=(7, 7), mode="bicubic").asnumpy()


def bicubic_equal() -> NDArray:
    x = Tensor(normal(1, 2, 4, 4))
    return ops.interpolate(x, size=(7, 7), mode="bicubic", align_corners=True).asnumpy()


def embedding_padding() -> NDArray:
    layer = nn.Embedding(6, 3, padding_idx=0)
    table = layer.embedding_table
    return ms.grad(lambda i: layer(i).sum(), None, table)(Tensor([0, 2, 0, 5])).asnumpy()


def embedding_padding_equal() -> NDArray:
    layer = nn.Embedding(6, 3, padding_idx=0)

    def forward(i: Tensor) -> Tensor:
        return (layer(i) * (i != 0).expand_dims(-1)).sum()

    return ms.grad(forward, None, layer.embedding_table)(Tensor([0, 2, 0, 5])).asnumpy()


def embedding_negative() -> NDArray:
    layer = nn.Embedding(6, 3, embedding_table=Tensor(normal(6, 3)))
    return layer(Tensor([0, -1])).asnumpy()


def lstm_gates() -> NDArray:
    layer = with_fixed_parameters(nn.LSTM(4, 3, num_layers=2, bidirectional=True))
    return layer(Tensor(normal(5, 2, 4)))[0].asnumpy()


def gru_gates() -> NDArray:
    layer = with_fixed_parameters(nn.GRU(4, 3, num_layers=2, bidirectional=True))
    return layer(Tensor(normal(5, 2, 4)))[0].asnumpy()


def cell_state() -> NDArray:
    return with_fixed_parameters(nn.GRUCell(4, 3))(Tensor(normal(2, 4))).asnumpy()


def cell_state_equal() -> NDArray:
    return with_fixed_parameters(nn.GRUCell(4, 3))(
        Tensor(normal(2, 4)), ops.zeros((2, 3))
    ).asnumpy()


def multihead_attention() -> NDArray:
    layer, x = with_fixed_parameters(nn.MultiheadAttention(8, 2)), Tensor(normal(5, 2, 8))
    later = np.triu(np.ones((5, 5), bool), 1)
    return layer(x, x, x, attn_mask=Tensor(later))[0].asnumpy()


def transformer_layer() -> NDArray:
    layer = with_fixed_parameters(nn.TransformerEncoderLayer(8, 2, dim_feedforward=16))
    return layer(Tensor(normal(5, 2, 8))).asnumpy()


def mint_nn() -> NDArray:
    layer = with_fixed_parameters(mint.nn.Conv2d(3, 4, 3))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def mint_nn_equal() -> NDArray:
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, pad_mode="valid", has_bias=True))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()
