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
    """Set each parameter of a layer to 0.5 times normal numbers, equal in both frameworks, and
    return the layer. The seed is the parameter's number, from 0, in the order of the names."""
    for number, (_, param) in enumerate(sorted(layer.named_parameters())):
        param.data = 0.5 * tensor(normal(*param.shape, seed=number))
    return layer


def gradient(function: Callable[[torch.Tensor], torch.Tensor], x: NDArray) -> NDArray:
    """Return the gradient of the sum of ``function(x)`` at ``x``, an array of its shape."""
    inputs = tensor(x, requires_grad=True)
    function(inputs).sum().backward()
    return inputs.grad.numpy()


def gelu() -> NDArray:
    """Run the probe "GELU's default formula" in PyTorch and return an output. `nn.GELU()` is x·Φ(x)
    with the error function."""
    layer = nn.GELU()
    return layer(tensor(normal(4, 16))).numpy()


def leaky_relu_slope() -> NDArray:
    """Run the probe "LeakyReLU's default slope" in PyTorch and return an output. `nn.LeakyReLU()`
    multiplies negative inputs by 0.01."""
    return nn.LeakyReLU()(tensor(normal(4, 16))).numpy()


def leaky_relu_gradient() -> NDArray:
    """Run the probe "Gradient of LeakyReLU at 0" in PyTorch and return the gradient at each input.
    At exactly 0 the gradient is the slope, 0.01."""
    return gradient(nn.LeakyReLU(0.01), np.zeros(4, np.float32))


def hardswish_gradient() -> NDArray:
    """Run the probe "Gradient of Hardswish at ±3" in PyTorch and return the gradient at each input.
    `nn.Hardswish` has gradient 0 at −3 and 1 at 3."""
    return gradient(nn.Hardswish(), np.linspace(-4, 4, 9, dtype=np.float32))


def maxpool_nan() -> NDArray:
    """Run the probe "NaN through max pooling" in PyTorch and return an output. A window with a NaN
    gives NaN."""
    x = np.array([[[[1, np.nan], [2, 3]]]], np.float32)
    return nn.MaxPool2d(2, stride=2)(tensor(x)).numpy()


def mish_overflow() -> NDArray:
    """Run the probe "Mish of large inputs" in PyTorch and return an output. Mish(x) is x for large
    x."""
    x = np.array([1, 10, 50, 100], np.float32)
    return nn.Mish()(tensor(x)).numpy()


def tanh_accuracy() -> NDArray:
    """Run the probe "Accuracy of tanh in float32" in PyTorch and return an output. Right to about
    3e-8."""
    x = np.linspace(-6, 6, 4001, dtype=np.float32)
    return nn.Tanh()(tensor(x)).numpy()


def selu_gradient() -> NDArray:
    """Run the probe "Gradient of SELU below zero" in PyTorch and return the gradient at each input.
    λ α eˣ: 0.65 at −1."""
    x = tensor(np.linspace(-3, 3, 24, dtype=np.float32)).requires_grad_()
    nn.SELU()(x).sum().backward()
    return x.grad.numpy()


def rrelu_evaluation() -> float:
    """Run the probe "RReLU in evaluation" in PyTorch and return the largest minus the smallest
    output for equal inputs. After `eval()` the slope is fixed: the mean of both bounds."""
    x = -tensor(np.ones(1000, np.float32))
    layer = nn.RReLU().eval()
    return float(layer(x).max() - layer(x).min())


def softmax_axis() -> NDArray:
    """Run the probe "Softmax without an axis" in PyTorch and return an output. `nn.Softmax()` warns
    and guesses: axis 0 of a 3-dimensional tensor, axis 1 of a 2- or 4-dimensional one."""
    return nn.Softmax()(tensor(normal(2, 3, 8))).numpy()


def softmax_axis_equal() -> NDArray:
    """Run the probe "Softmax without an axis" in PyTorch, written to agree with MindSpore, and
    return an output. Name the axis on both sides."""
    return nn.Softmax(dim=-1)(tensor(normal(2, 3, 8))).numpy()


def layernorm_eps() -> NDArray:
    """Run the probe "LayerNorm's default epsilon" in PyTorch and return an output. 1e-5."""
    layer = nn.LayerNorm(16)
    return layer(tensor(1e-3 * normal(4, 16))).detach().numpy()


def layernorm_axes() -> NDArray:
    """Run the probe "LayerNorm over several axes" in PyTorch and return an output.
    `nn.LayerNorm((C, H, W))` normalises over the axes of that shape."""
    layer = nn.LayerNorm((3, 8, 8))
    return layer(tensor(normal(2, 3, 8, 8))).detach().numpy()


def batchnorm_momentum() -> NDArray:
    """Run the probe "Meaning of BatchNorm's momentum" in PyTorch and return the running mean (3,).
    `momentum=0.1` is the weight of the new batch."""
    layer = nn.BatchNorm2d(3, momentum=0.1)
    layer(tensor(normal(2, 3, 8, 8)))
    return layer.running_mean.numpy()


def batchnorm_variance() -> NDArray:
    """Run the probe "The running variance of BatchNorm" in PyTorch and return the running variance
    (16,). The running average is of the unbiased variance (n − 1); the batch itself is normalised
    with the biased one."""
    layer = nn.BatchNorm1d(16)
    layer(tensor(normal(4, 16)))
    return layer.running_var.numpy()


def batchnorm_one_sample() -> NDArray:
    """Run the probe "BatchNorm with a last batch of one sample" in PyTorch, where it raises
    ValueError; else return the running variance (4,). Raises an error: there is no variance of one
    value."""
    layer = nn.BatchNorm1d(4)
    for batch in tensor(normal(5, 4)).split(2):
        layer(batch)
    return layer.running_var.numpy()


def batchnorm_one_sample_equal() -> NDArray:
    """Run the probe "BatchNorm with a last batch of one sample" in PyTorch, written to agree with
    MindSpore, and return the running variance (4,). Drop the last, incomplete batch on both
    sides."""
    layer = nn.BatchNorm1d(4)
    for batch in tensor(normal(5, 4))[:4].split(2):
        layer(batch)
    return layer.running_var.numpy()


def instance_norm() -> NDArray:
    """Run the probe "InstanceNorm on a CPU" in PyTorch and return an output. `nn.InstanceNorm2d`
    runs on a CPU, without weights by default."""
    return nn.InstanceNorm2d(3)(tensor(normal(2, 3, 8, 8))).numpy()


def l2_normalize() -> NDArray:
    """Run the probe "Epsilon of L2 normalisation" in PyTorch and return an output. `F.normalize`
    divides by max(norm, 1e-12)."""
    return F.normalize(tensor(1e-3 * normal(4, 16)), dim=1).numpy()


def cosine_similarity() -> NDArray:
    """Run the probe "Cosine similarity of short vectors" in PyTorch and return an output.
    `eps=1e-8` bounds each norm on its own."""
    a, b = 1e-5 * normal(4, 16), 1e-5 * normal(4, 16, seed=1)
    return F.cosine_similarity(tensor(a), tensor(b)).numpy()


def lrn() -> NDArray:
    """Run the probe "Local response normalisation" in PyTorch and return an output.
    `nn.LocalResponseNorm(5)` spans 5 channels, divides alpha by 5, with alpha 1e-4 and beta
    0.75."""
    return nn.LocalResponseNorm(5)(tensor(normal(1, 8, 4, 4))).numpy()


def dropout_argument() -> float:
    """Run the probe "Dropout's first argument" in PyTorch and return the share of dropped elements.
    `nn.Dropout(0.2)` drops one in five."""
    dropped = nn.Dropout(0.2)(torch.ones(100_000))
    return float((dropped == 0).float().mean())


def conv_padding() -> NDArray:
    """Run the probe "Convolution's default padding" in PyTorch and return an output. `padding=0`:
    the image shrinks."""
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, bias=False))
    return layer(tensor(normal(2, 3, 8, 8))).detach().numpy()


def conv_bias() -> int:
    """Run the probe "Convolution's bias" in PyTorch and return the number of the layer's
    parameters. A convolution has a bias by default."""
    return len(list(nn.Conv2d(3, 4, 3).parameters()))


def conv_same_stride() -> NDArray:
    """Run the probe "'same' padding with stride 2" in PyTorch and return an output. `padding=1`
    puts a zero on both sides of a 3×3 window's image."""
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False))
    return layer(tensor(normal(2, 3, 8, 8))).detach().numpy()


def conv_padding_pair() -> NDArray:
    """Run the probe "Padding of a convolution as a pair" in PyTorch and return an output.
    `padding=(1, 0)` pads height by 1 and width by 0."""
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, padding=(1, 0), bias=False))
    return layer(tensor(normal(2, 3, 8, 8))).detach().numpy()


def conv_float64() -> NDArray:
    """Run the probe "Convolution in float64" in PyTorch and return an output. Works, as for
    checking gradients."""
    layer = nn.Conv2d(3, 4, 3, bias=False, dtype=torch.float64)
    return layer(tensor(normal(2, 3, 8, 8)).double()).detach().numpy()


def conv_float64_equal() -> NDArray:
    """Run the probe "Convolution in float64" in PyTorch, written to agree with MindSpore, and
    return an output. Compare in float32."""
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, bias=False))
    return layer(tensor(normal(2, 3, 8, 8))).detach().numpy()


def conv1d_weight() -> NDArray:
    """Run the probe "Shape of Conv1d's weight" in PyTorch and return the weight. (out, in,
    width)."""
    return with_fixed_parameters(nn.Conv1d(3, 4, 5, bias=False)).weight.detach().numpy()


def conv_transpose_size() -> NDArray:
    """Run the probe "Output size of a transposed convolution" in PyTorch and return an output. 8
    becomes 17 with kernel 3 and stride 2 (`padding=0`)."""
    layer = with_fixed_parameters(nn.ConvTranspose2d(3, 4, 3, stride=2, bias=False))
    return layer(tensor(normal(2, 3, 8, 8))).detach().numpy()


def conv_transpose_output_padding() -> NDArray:
    """Run the probe "output_padding of a transposed convolution" in PyTorch and return an output.
    The extra row and column are computed like the others."""
    layer = nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1, bias=False)
    return with_fixed_parameters(layer)(tensor(normal(2, 3, 8, 8))).detach().numpy()


def maxpool_stride() -> NDArray:
    """Run the probe "Default stride of pooling" in PyTorch and return an output. `nn.MaxPool2d(2)`
    moves by 2, the size of its window."""
    return nn.MaxPool2d(2)(tensor(normal(2, 3, 8, 8))).numpy()


def avgpool_functional() -> NDArray:
    """Run the probe "Default stride of avg_pool2d, the function" in PyTorch and return an output.
    `F.avg_pool2d(x, 2)` moves by 2."""
    return F.avg_pool2d(tensor(normal(2, 3, 8, 8)), 2).numpy()


def avgpool_same() -> NDArray:
    """Run the probe "Padding in average pooling" in PyTorch and return an output. `padding=1`
    counts the zeros of the padding."""
    return nn.AvgPool2d(3, stride=1, padding=1)(tensor(normal(2, 3, 8, 8))).numpy()


def pool_ceil_mode() -> NDArray:
    """Run the probe "ceil_mode of max pooling" in PyTorch and return an output. `ceil_mode=True`
    rounds the output size up."""
    return nn.MaxPool2d(3, stride=2, ceil_mode=True)(tensor(normal(2, 3, 8, 8))).numpy()


def upsample_scale() -> NDArray:
    """Run the probe "Upsampling by a factor" in PyTorch and return an output.
    `nn.Upsample(scale_factor=2.0)` works for images."""
    layer = nn.Upsample(scale_factor=2.0, mode="bilinear")
    return layer(tensor(normal(1, 2, 4, 4))).numpy()


def bicubic() -> NDArray:
    """Run the probe "The kernel of bicubic interpolation" in PyTorch and return an output. The
    cubic coefficient is −0.75."""
    x = tensor(normal(1, 2, 4, 4))
    return F.interpolate(x, size=(7, 7), mode="bicubic").numpy()


def bicubic_equal() -> NDArray:
    """Run the probe "The kernel of bicubic interpolation" in PyTorch, written to agree with
    MindSpore, and return an output. `align_corners=True` and a `size` on both sides, or bilinear
    interpolation."""
    x = tensor(normal(1, 2, 4, 4))
    return F.interpolate(x, size=(7, 7), mode="bicubic", align_corners=True).numpy()


def embedding_padding() -> NDArray:
    """Run the probe "The padding row of an embedding" in PyTorch and return the gradient of the
    table (6, 3). The row of `padding_idx` starts at 0 and gets no gradient."""
    layer = nn.Embedding(6, 3, padding_idx=0)
    layer(tensor([0, 2, 0, 5])).sum().backward()
    return layer.weight.grad.numpy()


def embedding_negative() -> NDArray:
    """Run the probe "A negative index into an embedding" in PyTorch, where it raises IndexError;
    else return an output. Raises an error."""
    table = tensor(normal(6, 3))
    return F.embedding(tensor([0, -1]), table).numpy()


def embedding_negative_equal() -> NDArray:
    """Run the probe "A negative index into an embedding" in PyTorch, written to agree with
    MindSpore, and return an output. Check the ids where data are read (a −1 for padding is the
    usual cause), or take them modulo the table's size on both sides."""
    table = tensor(normal(6, 3))
    return F.embedding(tensor([0, -1]) % 6, table).numpy()


def lstm_gates() -> NDArray:
    """Run the probe "Weights of LSTM" in PyTorch and return an output. Gates i, f, g, o one below
    the other; `weight_ih_l0` and so on; layers and directions in this order."""
    layer = with_fixed_parameters(nn.LSTM(4, 3, num_layers=2, bidirectional=True))
    return layer(tensor(normal(5, 2, 4)))[0].detach().numpy()


def gru_gates() -> NDArray:
    """Run the probe "Weights of GRU" in PyTorch and return an output. Gates r, z, n one below the
    other; the reset gate is applied after the matrix product."""
    layer = with_fixed_parameters(nn.GRU(4, 3, num_layers=2, bidirectional=True))
    return layer(tensor(normal(5, 2, 4)))[0].detach().numpy()


def cell_state() -> NDArray:
    """Run the probe "The first state of a recurrent cell" in PyTorch and return an output.
    `nn.GRUCell` starts from zeros when no state is given."""
    return with_fixed_parameters(nn.GRUCell(4, 3))(tensor(normal(2, 4))).detach().numpy()


def multihead_attention() -> NDArray:
    """Run the probe "Multi-head attention and its masks" in PyTorch and return an output. Sequence
    first by default; a mask is true where attention is forbidden."""
    layer, x = with_fixed_parameters(nn.MultiheadAttention(8, 2)), tensor(normal(5, 2, 8))
    later = np.triu(np.ones((5, 5), bool), 1)
    return layer(x, x, x, attn_mask=tensor(later))[0].detach().numpy()


def transformer_layer() -> NDArray:
    """Run the probe "A transformer encoder layer" in PyTorch and return an output. Normalises after
    each block, with epsilon 1e-5, ReLU and dropout 0.1."""
    layer = with_fixed_parameters(nn.TransformerEncoderLayer(8, 2, dim_feedforward=16).eval())
    return layer(tensor(normal(5, 2, 8))).detach().numpy()


def mint_nn() -> NDArray:
    """Run the probe "mindspore.mint.nn on a CPU" in PyTorch and return an output. `torch.nn` runs
    on every device."""
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3))
    return layer(tensor(normal(2, 3, 8, 8))).detach().numpy()
