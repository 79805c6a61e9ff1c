"""Probes of layers in MindSpore."""

from __future__ import annotations

from collections.abc import Callable

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops
from numpy.typing import NDArray

from dualml.parity.diffs.inputs import normal


def with_fixed_parameters(layer: nn.Cell) -> nn.Cell:
    """Set each trainable parameter of a layer to 0.5 times normal numbers, equal in both
    frameworks, and return the layer. The seed is the parameter's number, from 0, in the order of
    the names."""
    for number, param in enumerate(sorted(layer.trainable_params(), key=lambda one: one.name)):
        param.set_data(0.5 * Tensor(normal(*param.shape, seed=number)))
    return layer


def gradient(function: Callable[[Tensor], Tensor], x: NDArray) -> NDArray:
    """Return the gradient of the sum of ``function(x)`` with respect to ``x``, in its shape."""
    return ms.grad(lambda inputs: function(inputs).sum())(Tensor(x)).asnumpy()


def gelu() -> NDArray:
    """Run the probe "GELU's default formula" in MindSpore and return an output. `nn.GELU()` is the
    tanh approximation."""
    layer = nn.GELU()
    return layer(Tensor(normal(4, 16))).asnumpy()


def gelu_equal() -> NDArray:
    """Run the probe "GELU's default formula" in MindSpore, written to agree with PyTorch, and
    return an output. MindSpore: `nn.GELU(approximate=False)` or `ops.gelu`."""
    layer = nn.GELU(approximate=False)
    return layer(Tensor(normal(4, 16))).asnumpy()


def leaky_relu_slope() -> NDArray:
    """Run the probe "LeakyReLU's default slope" in MindSpore and return an output. `nn.LeakyReLU()`
    multiplies them by 0.2."""
    return nn.LeakyReLU()(Tensor(normal(4, 16))).asnumpy()


def leaky_relu_slope_equal() -> NDArray:
    """Run the probe "LeakyReLU's default slope" in MindSpore, written to agree with PyTorch, and
    return an output. Always pass the slope: `nn.LeakyReLU(0.01)`."""
    return nn.LeakyReLU(0.01)(Tensor(normal(4, 16))).asnumpy()


def leaky_relu_gradient() -> NDArray:
    """Run the probe "Gradient of LeakyReLU at 0" in MindSpore and return the gradient at each
    input. The layer is a maximum of two branches; at 0 they tie and the gradient is their mean,
    0.505. Zero padding and dropout make exact zeros common."""
    return gradient(nn.LeakyReLU(0.01), np.zeros(4, np.float32))


def leaky_relu_gradient_equal() -> NDArray:
    """Run the probe "Gradient of LeakyReLU at 0" in MindSpore, written to agree with PyTorch, and
    return the gradient at each input. MindSpore: `ops.where(x > 0, x, slope * x)`."""
    return gradient(lambda x: ops.where(x > 0, x, 0.01 * x), np.zeros(4, np.float32))


def hardswish_gradient() -> NDArray:
    """Run the probe "Gradient of Hardswish at ±3" in MindSpore and return the gradient at each
    input. `nn.HSwish` has −0.5 at −3 and 1.5 at 3, the values of its middle piece."""
    return gradient(nn.HSwish(), np.linspace(-4, 4, 9, dtype=np.float32))


def hardswish_gradient_equal() -> NDArray:
    """Run the probe "Gradient of Hardswish at ±3" in MindSpore, written to agree with PyTorch, and
    return the gradient at each input. MindSpore: compose it, `x * (6 - ops.relu(6 - ops.relu(x +
    3))) / 6`."""
    x = np.linspace(-4, 4, 9, dtype=np.float32)
    return gradient(lambda x: x * (6 - ops.relu(6 - ops.relu(x + 3))) / 6, x)


def maxpool_nan() -> NDArray:
    """Run the probe "NaN through max pooling" in MindSpore and return an output. The NaN is passed
    over and the largest of the others is given."""
    x = np.array([[[[1, np.nan], [2, 3]]]], np.float32)
    return nn.MaxPool2d(2, stride=2)(Tensor(x)).asnumpy()


def mish_overflow() -> NDArray:
    """Run the probe "Mish of large inputs" in MindSpore and return an output. In float32 on a CPU
    it overflows: infinite at 44, NaN from 45 on."""
    x = np.array([1, 10, 50, 100], np.float32)
    return nn.Mish()(Tensor(x)).asnumpy()


def mish_overflow_equal() -> NDArray:
    """Run the probe "Mish of large inputs" in MindSpore, written to agree with PyTorch, and return
    an output. MindSpore: `x * ops.tanh(ops.softplus(x))`."""
    x = Tensor(np.array([1, 10, 50, 100], np.float32))
    return (x * ops.tanh(ops.softplus(x))).asnumpy()


def tanh_accuracy() -> NDArray:
    """Run the probe "Accuracy of tanh in float32" in MindSpore and return an output. On a CPU off
    by up to 1e-4, worst near |x| = 5, where it even exceeds 1 by 1e-5; its gradient there is wrong
    too. In float64 it is exact."""
    x = np.linspace(-6, 6, 4001, dtype=np.float32)
    return nn.Tanh()(Tensor(x)).asnumpy()


def tanh_accuracy_equal() -> NDArray:
    """Run the probe "Accuracy of tanh in float32" in MindSpore, written to agree with PyTorch, and
    return an output. MindSpore: compute it in float64,
    `ops.tanh(x.astype(ms.float64)).astype(ms.float32)`."""
    x = np.linspace(-6, 6, 4001, dtype=np.float32)
    return nn.Tanh()(Tensor(x).astype(ms.float64)).astype(ms.float32).asnumpy()


def selu_gradient() -> NDArray:
    """Run the probe "Gradient of SELU below zero" in MindSpore and return the gradient at each
    input. The forward pass is the same; on a CPU the gradient below zero is too small by about 0.75
    and often has the wrong sign: −0.12 at −1."""
    x = Tensor(np.linspace(-3, 3, 24, dtype=np.float32))
    return ms.grad(lambda x: nn.SeLU()(x).sum())(x).asnumpy()


def selu_gradient_equal() -> NDArray:
    """Run the probe "Gradient of SELU below zero" in MindSpore, written to agree with PyTorch, and
    return the gradient at each input. MindSpore: write it out, `1.0507009873554805 * ops.where(x >
    0, x, 1.6732632423543772 * (ops.exp(ops.minimum(x, 0)) - 1))`."""

    def selu(x: Tensor) -> Tensor:
        below = 1.6732632423543772 * (ops.exp(ops.minimum(x, 0)) - 1)
        return 1.0507009873554805 * ops.where(x > 0, x, below)

    x = Tensor(np.linspace(-3, 3, 24, dtype=np.float32))
    return ms.grad(lambda x: selu(x).sum())(x).asnumpy()


def rrelu_evaluation() -> float:
    """Run the probe "RReLU in evaluation" in MindSpore and return the largest minus the smallest
    output for equal inputs. The slope is drawn anew at each call, whatever the mode."""
    x = -Tensor(np.ones(1000, np.float32))
    layer = nn.RReLU().set_train(False)
    return float(layer(x).max() - layer(x).min())


def rrelu_evaluation_equal() -> float:
    """Run the probe "RReLU in evaluation" in MindSpore, written to agree with PyTorch, and return
    the largest minus the smallest output for equal inputs. MindSpore: for evaluation use
    `nn.LeakyReLU` with the mean of the bounds."""
    x = -Tensor(np.ones(1000, np.float32))
    layer = nn.LeakyReLU((1 / 8 + 1 / 3) / 2)
    return float(layer(x).max() - layer(x).min())


def softmax_axis() -> NDArray:
    """Run the probe "Softmax without an axis" in MindSpore and return an output. `nn.Softmax()`
    takes the last axis."""
    return nn.Softmax()(Tensor(normal(2, 3, 8))).asnumpy()


def layernorm_eps() -> NDArray:
    """Run the probe "LayerNorm's default epsilon" in MindSpore and return an output. 1e-7:
    activations of small variance come out larger."""
    layer = nn.LayerNorm((16,))
    return layer(Tensor(1e-3 * normal(4, 16))).asnumpy()


def layernorm_eps_equal() -> NDArray:
    """Run the probe "LayerNorm's default epsilon" in MindSpore, written to agree with PyTorch, and
    return an output. MindSpore: `nn.LayerNorm(shape, epsilon=1e-5)`."""
    layer = nn.LayerNorm((16,), epsilon=1e-5)
    return layer(Tensor(1e-3 * normal(4, 16))).asnumpy()


def layernorm_axes() -> NDArray:
    """Run the probe "LayerNorm over several axes" in MindSpore, where it raises ValueError; else
    return an output. By default only over the last axis, so that shape raises an error; a plain
    number instead of a tuple does too."""
    layer = nn.LayerNorm((3, 8, 8))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def layernorm_axes_equal() -> NDArray:
    """Run the probe "LayerNorm over several axes" in MindSpore, written to agree with PyTorch, and
    return an output. MindSpore: pass `begin_norm_axis=1, begin_params_axis=1`."""
    layer = nn.LayerNorm((3, 8, 8), begin_norm_axis=1, begin_params_axis=1, epsilon=1e-5)
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def batchnorm_momentum() -> NDArray:
    """Run the probe "Meaning of BatchNorm's momentum" in MindSpore and return the running mean
    (3,). `momentum=0.9` is the weight of the old average. The defaults agree; a value passed on
    does not."""
    layer = nn.BatchNorm2d(3, momentum=0.1).set_train()
    layer(Tensor(normal(2, 3, 8, 8)))
    return layer.moving_mean.asnumpy()


def batchnorm_momentum_equal() -> NDArray:
    """Run the probe "Meaning of BatchNorm's momentum" in MindSpore, written to agree with PyTorch,
    and return the running mean (3,). MindSpore: pass 1 − m."""
    layer = nn.BatchNorm2d(3, momentum=1 - 0.1).set_train()
    layer(Tensor(normal(2, 3, 8, 8)))
    return layer.moving_mean.asnumpy()


def batchnorm_variance() -> NDArray:
    """Run the probe "The running variance of BatchNorm" in MindSpore and return the running
    variance (16,). As in PyTorch."""
    layer = nn.BatchNorm1d(16).set_train()
    layer(Tensor(normal(4, 16)))
    return layer.moving_variance.asnumpy()


def batchnorm_one_sample() -> NDArray:
    """Run the probe "BatchNorm with a last batch of one sample" in MindSpore and return the running
    variance (4,). Goes on, and the running variance is NaN from then on; evaluation is ruined."""
    layer = nn.BatchNorm1d(4).set_train()
    for batch in Tensor(normal(5, 4)).split(2):
        layer(batch)
    return layer.moving_variance.asnumpy()


def batchnorm_one_sample_equal() -> NDArray:
    """Run the probe "BatchNorm with a last batch of one sample" in MindSpore, written to agree with
    PyTorch, and return the running variance (4,). Drop the last, incomplete batch on both sides."""
    layer = nn.BatchNorm1d(4).set_train()
    for batch in Tensor(normal(5, 4))[:4].split(2):
        layer(batch)
    return layer.moving_variance.asnumpy()


def instance_norm() -> NDArray:
    """Run the probe "InstanceNorm on a CPU" in MindSpore, where it raises RuntimeError; else return
    an output. It has no CPU kernel and raises an error; elsewhere it has weights by default."""
    return nn.InstanceNorm2d(3)(Tensor(normal(2, 3, 8, 8))).asnumpy()


def instance_norm_equal() -> NDArray:
    """Run the probe "InstanceNorm on a CPU" in MindSpore, written to agree with PyTorch, and return
    an output. MindSpore: `nn.GroupNorm(C, C)` is the same function."""
    return nn.GroupNorm(3, 3)(Tensor(normal(2, 3, 8, 8))).asnumpy()


def l2_normalize() -> NDArray:
    """Run the probe "Epsilon of L2 normalisation" in MindSpore and return an output.
    `ops.L2Normalize` divides by √max(norm², 1e-4): vectors shorter than 0.01 stay short."""
    return ops.L2Normalize(axis=1)(Tensor(1e-3 * normal(4, 16))).asnumpy()


def l2_normalize_equal() -> NDArray:
    """Run the probe "Epsilon of L2 normalisation" in MindSpore, written to agree with PyTorch, and
    return an output. MindSpore: `ops.L2Normalize(axis, epsilon=1e-24)`."""
    return ops.L2Normalize(axis=1, epsilon=1e-24)(Tensor(1e-3 * normal(4, 16))).asnumpy()


def cosine_similarity() -> NDArray:
    """Run the probe "Cosine similarity of short vectors" in MindSpore and return an output.
    `eps=1e-8` bounds the product of both norms, which short vectors reach much earlier."""
    a, b = 1e-5 * normal(4, 16), 1e-5 * normal(4, 16, seed=1)
    return ops.cosine_similarity(Tensor(a), Tensor(b)).asnumpy()


def cosine_similarity_equal() -> NDArray:
    """Run the probe "Cosine similarity of short vectors" in MindSpore, written to agree with
    PyTorch, and return an output. MindSpore: pass the square, `eps=1e-16`."""
    a, b = 1e-5 * normal(4, 16), 1e-5 * normal(4, 16, seed=1)
    return ops.cosine_similarity(Tensor(a), Tensor(b), eps=1e-16).asnumpy()


def lrn() -> NDArray:
    """Run the probe "Local response normalisation" in MindSpore and return an output. `nn.LRN(5)`
    takes 5 channels on either side, does not divide, with alpha 1 and beta 0.5."""
    return nn.LRN(5)(Tensor(normal(1, 8, 4, 4))).asnumpy()


def lrn_equal() -> NDArray:
    """Run the probe "Local response normalisation" in MindSpore, written to agree with PyTorch, and
    return an output. MindSpore: `nn.LRN(2, bias=1.0, alpha=1e-4 / 5, beta=0.75)`."""
    layer = nn.LRN(depth_radius=2, bias=1.0, alpha=1e-4 / 5, beta=0.75)
    return layer(Tensor(normal(1, 8, 4, 4))).asnumpy()


def dropout_argument() -> float:
    """Run the probe "Dropout's first argument" in MindSpore and return the share of dropped
    elements. `nn.Dropout(0.2)` keeps one in five: by position it is the deprecated `keep_prob`, and
    only a line in the log says so."""
    dropped = nn.Dropout(0.2).set_train()(ops.ones(100_000))
    return float((dropped.asnumpy() == 0).mean())


def dropout_argument_equal() -> float:
    """Run the probe "Dropout's first argument" in MindSpore, written to agree with PyTorch, and
    return the share of dropped elements. MindSpore: `nn.Dropout(p=0.2)`, and `set_train()`."""
    dropped = nn.Dropout(p=0.2).set_train()(ops.ones(100_000))
    return float((dropped.asnumpy() == 0).mean())


def conv_padding() -> NDArray:
    """Run the probe "Convolution's default padding" in MindSpore and return an output.
    `pad_mode='same'`: it keeps its size; `padding=1` alone raises an error."""
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def conv_padding_equal() -> NDArray:
    """Run the probe "Convolution's default padding" in MindSpore, written to agree with PyTorch,
    and return an output. MindSpore: `pad_mode='pad', padding=…` for each convolution."""
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, pad_mode="pad", padding=0))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def conv_bias() -> int:
    """Run the probe "Convolution's bias" in MindSpore and return the number of the layer's
    parameters. It has none (`has_bias=False`); a dense layer has one."""
    return len(nn.Conv2d(3, 4, 3).trainable_params())


def conv_bias_equal() -> int:
    """Run the probe "Convolution's bias" in MindSpore, written to agree with PyTorch, and return
    the number of the layer's parameters. Pass `bias=` and `has_bias=`."""
    return len(nn.Conv2d(3, 4, 3, has_bias=True).trainable_params())


def conv_same_stride() -> NDArray:
    """Run the probe "'same' padding with stride 2" in MindSpore and return an output.
    `pad_mode='same'` gives the same shape but pads the far side first: on an even size the windows
    lie one pixel further. So do those of max pooling."""
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, stride=2, pad_mode="same"))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def conv_same_stride_equal() -> NDArray:
    """Run the probe "'same' padding with stride 2" in MindSpore, written to agree with PyTorch, and
    return an output. MindSpore: `pad_mode='pad', padding=1`."""
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, stride=2, pad_mode="pad", padding=1))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def conv_padding_pair() -> NDArray:
    """Run the probe "Padding of a convolution as a pair" in MindSpore, where it raises ValueError;
    else return an output. `nn.Conv2d` wants one number or four (top, bottom, left, right) and
    raises an error for two."""
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, pad_mode="pad", padding=(1, 0)))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def conv_padding_pair_equal() -> NDArray:
    """Run the probe "Padding of a convolution as a pair" in MindSpore, written to agree with
    PyTorch, and return an output. MindSpore: `padding=(1, 1, 0, 0)`."""
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, pad_mode="pad", padding=(1, 1, 0, 0)))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def conv_float64() -> NDArray:
    """Run the probe "Convolution in float64" in MindSpore, where it raises TypeError; else return
    an output. Raises an error: the kernel takes no float64. So does BatchNorm's."""
    layer = nn.Conv2d(3, 4, 3, pad_mode="pad", dtype=ms.float64)
    return layer(Tensor(normal(2, 3, 8, 8)).astype(ms.float64)).asnumpy()


def conv_float64_equal() -> NDArray:
    """Run the probe "Convolution in float64" in MindSpore, written to agree with PyTorch, and
    return an output. Compare in float32."""
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, pad_mode="pad"))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def conv1d_weight() -> NDArray:
    """Run the probe "Shape of Conv1d's weight" in MindSpore and return the weight. (out, in, 1,
    width): it is a 2-dimensional convolution inside."""
    return nn.Conv1d(3, 4, 5).weight.asnumpy()


def conv1d_weight_equal() -> NDArray:
    """Run the probe "Shape of Conv1d's weight" in MindSpore, written to agree with PyTorch, and
    return the weight. Add or drop axis 2 when weights are carried over."""
    layer = nn.Conv1d(3, 4, 5)
    layer.weight.set_data(0.5 * Tensor(normal(4, 3, 5)).expand_dims(2))
    return layer.weight.squeeze(2).asnumpy()


def conv_transpose_size() -> NDArray:
    """Run the probe "Output size of a transposed convolution" in MindSpore and return an output. 8
    becomes 16 (`pad_mode='same'`)."""
    layer = with_fixed_parameters(nn.Conv2dTranspose(3, 4, 3, stride=2))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def conv_transpose_size_equal() -> NDArray:
    """Run the probe "Output size of a transposed convolution" in MindSpore, written to agree with
    PyTorch, and return an output. MindSpore: `pad_mode='pad', padding=0`."""
    layer = with_fixed_parameters(nn.Conv2dTranspose(3, 4, 3, stride=2, pad_mode="pad", padding=0))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def conv_transpose_output_padding() -> NDArray:
    """Run the probe "output_padding of a transposed convolution" in MindSpore and return an output.
    The shape is right, but the extra row and column are zero."""
    layer = nn.Conv2dTranspose(3, 4, 3, stride=2, pad_mode="pad", padding=1, output_padding=1)
    return with_fixed_parameters(layer)(Tensor(normal(2, 3, 8, 8))).asnumpy()


def conv_transpose_output_padding_equal() -> NDArray:
    """Run the probe "output_padding of a transposed convolution" in MindSpore, written to agree
    with PyTorch, and return an output. MindSpore: take it off the padding of the far side instead,
    `padding=(1, 0, 1, 0)` without `output_padding`."""
    layer = nn.Conv2dTranspose(3, 4, 3, stride=2, pad_mode="pad", padding=(1, 0, 1, 0))
    return with_fixed_parameters(layer)(Tensor(normal(2, 3, 8, 8))).asnumpy()


def maxpool_stride() -> NDArray:
    """Run the probe "Default stride of pooling" in MindSpore and return an output.
    `nn.MaxPool2d(2)` moves by 1."""
    return nn.MaxPool2d(2)(Tensor(normal(2, 3, 8, 8))).asnumpy()


def maxpool_stride_equal() -> NDArray:
    """Run the probe "Default stride of pooling" in MindSpore, written to agree with PyTorch, and
    return an output. MindSpore: `nn.MaxPool2d(2, stride=2)`."""
    return nn.MaxPool2d(2, stride=2)(Tensor(normal(2, 3, 8, 8))).asnumpy()


def avgpool_functional() -> NDArray:
    """Run the probe "Default stride of avg_pool2d, the function" in MindSpore and return an output.
    `ops.avg_pool2d(x, 2)` moves by 1, though `ops.max_pool2d(x, 2)` moves by 2."""
    return ops.avg_pool2d(Tensor(normal(2, 3, 8, 8)), 2).asnumpy()


def avgpool_functional_equal() -> NDArray:
    """Run the probe "Default stride of avg_pool2d, the function" in MindSpore, written to agree
    with PyTorch, and return an output. Pass `stride=`."""
    return ops.avg_pool2d(Tensor(normal(2, 3, 8, 8)), 2, stride=2).asnumpy()


def avgpool_same() -> NDArray:
    """Run the probe "Padding in average pooling" in MindSpore and return an output.
    `pad_mode='same'` leaves them out: the border differs."""
    layer = nn.AvgPool2d(3, stride=1, pad_mode="same")
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def avgpool_same_equal() -> NDArray:
    """Run the probe "Padding in average pooling" in MindSpore, written to agree with PyTorch, and
    return an output. MindSpore: `pad_mode='pad', padding=1`; or torch:
    `count_include_pad=False`."""
    layer = nn.AvgPool2d(3, stride=1, pad_mode="pad", padding=1)
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def pool_ceil_mode() -> NDArray:
    """Run the probe "ceil_mode of max pooling" in MindSpore, where it raises ValueError; else
    return an output. Raises an error unless `pad_mode='pad'` is given as well."""
    layer = nn.MaxPool2d(3, stride=2, ceil_mode=True)
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def pool_ceil_mode_equal() -> NDArray:
    """Run the probe "ceil_mode of max pooling" in MindSpore, written to agree with PyTorch, and
    return an output. MindSpore: `pad_mode='pad', ceil_mode=True`."""
    layer = nn.MaxPool2d(3, stride=2, pad_mode="pad", ceil_mode=True)
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def upsample_scale() -> NDArray:
    """Run the probe "Upsampling by a factor" in MindSpore, where it raises ValueError; else return
    an output. Raises an error for images (nearest, bilinear and bicubic)."""
    layer = nn.Upsample(scale_factor=2.0, mode="bilinear")
    return layer(Tensor(normal(1, 2, 4, 4))).asnumpy()


def upsample_scale_equal() -> NDArray:
    """Run the probe "Upsampling by a factor" in MindSpore, written to agree with PyTorch, and
    return an output. MindSpore: add `recompute_scale_factor=True`, or pass `size`."""
    layer = nn.Upsample(scale_factor=2.0, mode="bilinear", recompute_scale_factor=True)
    return layer(Tensor(normal(1, 2, 4, 4))).asnumpy()


def bicubic() -> NDArray:
    """Run the probe "The kernel of bicubic interpolation" in MindSpore and return an output.
    Without `align_corners` it is −0.5; with it, −0.75."""
    x = Tensor(normal(1, 2, 4, 4))
    return ops.interpolate(x, size=(7, 7), mode="bicubic").asnumpy()


def bicubic_equal() -> NDArray:
    """Run the probe "The kernel of bicubic interpolation" in MindSpore, written to agree with
    PyTorch, and return an output. `align_corners=True` and a `size` on both sides, or bilinear
    interpolation."""
    x = Tensor(normal(1, 2, 4, 4))
    return ops.interpolate(x, size=(7, 7), mode="bicubic", align_corners=True).asnumpy()


def embedding_padding() -> NDArray:
    """Run the probe "The padding row of an embedding" in MindSpore and return the gradient of the
    table (6, 3). It starts at 0 but gets a gradient, so that it is trained like the others."""
    layer = nn.Embedding(6, 3, padding_idx=0)
    table = layer.embedding_table
    return ms.grad(lambda i: layer(i).sum(), None, table)(Tensor([0, 2, 0, 5])).asnumpy()


def embedding_padding_equal() -> NDArray:
    """Run the probe "The padding row of an embedding" in MindSpore, written to agree with PyTorch,
    and return the gradient of the table (6, 3). MindSpore: multiply the output by `(ids !=
    0).expand_dims(-1)`."""
    layer = nn.Embedding(6, 3, padding_idx=0)

    def forward(i: Tensor) -> Tensor:
        return (layer(i) * (i != 0).expand_dims(-1)).sum()

    return ms.grad(forward, None, layer.embedding_table)(Tensor([0, 2, 0, 5])).asnumpy()


def embedding_negative() -> NDArray:
    """Run the probe "A negative index into an embedding" in MindSpore and return an output. On a
    CPU −1 gives the last row; only numbers beyond the table raise an error."""
    layer = nn.Embedding(6, 3, embedding_table=Tensor(normal(6, 3)))
    return layer(Tensor([0, -1])).asnumpy()


def lstm_gates() -> NDArray:
    """Run the probe "Weights of LSTM" in MindSpore and return an output. As in PyTorch: names,
    shapes and order."""
    layer = with_fixed_parameters(nn.LSTM(4, 3, num_layers=2, bidirectional=True))
    return layer(Tensor(normal(5, 2, 4)))[0].asnumpy()


def gru_gates() -> NDArray:
    """Run the probe "Weights of GRU" in MindSpore and return an output. As in PyTorch: names,
    shapes and formula."""
    layer = with_fixed_parameters(nn.GRU(4, 3, num_layers=2, bidirectional=True))
    return layer(Tensor(normal(5, 2, 4)))[0].asnumpy()


def cell_state() -> NDArray:
    """Run the probe "The first state of a recurrent cell" in MindSpore, where it raises TypeError;
    else return an output. The state is a required argument of the cells (not of `nn.GRU` and
    `nn.LSTM`)."""
    return with_fixed_parameters(nn.GRUCell(4, 3))(Tensor(normal(2, 4))).asnumpy()


def cell_state_equal() -> NDArray:
    """Run the probe "The first state of a recurrent cell" in MindSpore, written to agree with
    PyTorch, and return an output. MindSpore: pass `ops.zeros((batch, hidden))`."""
    return with_fixed_parameters(nn.GRUCell(4, 3))(
        Tensor(normal(2, 4)), ops.zeros((2, 3))
    ).asnumpy()


def multihead_attention() -> NDArray:
    """Run the probe "Multi-head attention and its masks" in MindSpore and return an output. As in
    PyTorch, with the same names and shapes of the weights."""
    layer, x = with_fixed_parameters(nn.MultiheadAttention(8, 2)), Tensor(normal(5, 2, 8))
    later = np.triu(np.ones((5, 5), bool), 1)
    return layer(x, x, x, attn_mask=Tensor(later))[0].asnumpy()


def transformer_layer() -> NDArray:
    """Run the probe "A transformer encoder layer" in MindSpore and return an output. As in PyTorch
    (its LayerNorm has epsilon 1e-5 here); `linear1` is called `dense1`, the norms have `gamma` and
    `beta`."""
    layer = with_fixed_parameters(nn.TransformerEncoderLayer(8, 2, dim_feedforward=16))
    return layer(Tensor(normal(5, 2, 8))).asnumpy()


def mint_nn() -> NDArray:
    """Run the probe "mindspore.mint.nn on a CPU" in MindSpore, where it raises RuntimeError; else
    return an output. `mint.nn` has torch's interface but is made for Ascend; on a CPU `Conv2d`,
    `BatchNorm2d`, `LayerNorm`, `Embedding`, `GELU`, `MaxPool2d` and others raise an error when
    called."""
    layer = with_fixed_parameters(mint.nn.Conv2d(3, 4, 3))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()


def mint_nn_equal() -> NDArray:
    """Run the probe "mindspore.mint.nn on a CPU" in MindSpore, written to agree with PyTorch, and
    return an output. MindSpore on a CPU: `mindspore.nn`."""
    layer = with_fixed_parameters(nn.Conv2d(3, 4, 3, pad_mode="valid", has_bias=True))
    return layer(Tensor(normal(2, 3, 8, 8))).asnumpy()
