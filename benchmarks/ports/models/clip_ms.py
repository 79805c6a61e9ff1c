"""Two towers and CLIP's symmetric loss with a learned temperature."""

import math

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Normal, initializer
from mindspore.experimental import optim


def normalize(x):
    """Unit length along the last axis."""
    return x / ops.sqrt(ops.square(x).sum(axis=-1, keepdims=True))


class Net(nn.Cell):
    """Outputs both unit vectors and the scale."""

    def __init__(self, pixels=12, vocab=15, d=16, shared=8):
        super().__init__()
        init = Normal(d**-0.5)
        self.visual = nn.SequentialCell(nn.Dense(pixels, d), nn.ReLU(), nn.Dense(d, d))
        self.ln_post = nn.LayerNorm((d,), epsilon=1e-5)
        self.image_projection = Parameter(initializer(init, (d, shared), ms.float32))
        self.token_embedding = nn.Embedding(vocab, d, embedding_table="normal")
        self.ln_final = nn.LayerNorm((d,), epsilon=1e-5)
        self.text_projection = Parameter(initializer(init, (d, shared), ms.float32))
        self.logit_scale = Parameter(Tensor(math.log(1 / 0.07), ms.float32), name="logit_scale")

    def encode_image(self, image):
        x = self.ln_post(self.visual(image))
        return normalize(ops.matmul(x, self.image_projection))

    def encode_text(self, text, lengths):
        keep = ops.arange(text.shape[1]).expand_dims(0) <= lengths.expand_dims(1)
        keep = keep.astype(ms.float32)
        x = (self.token_embedding(text) * keep.expand_dims(-1)).sum(axis=1)
        x = x / keep.sum(axis=1, keepdims=True)
        return normalize(ops.matmul(self.ln_final(x), self.text_projection))

    def construct(self, image, text, lengths):
        scale = ops.clamp(ops.exp(self.logit_scale), max=100.0)
        return self.encode_image(image), self.encode_text(text, lengths), scale


def loss(outputs, targets=None):
    """Cross-entropy of images to texts and of texts to images."""
    image, text, scale = outputs
    logits = scale * ops.matmul(image, text.T)
    labels = ops.arange(logits.shape[0]).astype(ms.int32)
    image_loss = ops.cross_entropy(logits, labels)
    text_loss = ops.cross_entropy(logits.T, labels)
    return (image_loss + text_loss) / 2


def optimizer(parameters):
    """No decay of gains, biases and the scale."""
    parameters = list(parameters)
    no_decay = [p for p in parameters if p.ndim < 2]
    decay = [p for p in parameters if p.ndim >= 2]
    groups = [{"params": no_decay, "weight_decay": 0.0}, {"params": decay, "weight_decay": 0.2}]
    return optim.AdamW(groups, lr=5e-3, betas=(0.9, 0.98), eps=1e-6)
