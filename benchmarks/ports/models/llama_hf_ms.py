"""A small Llama with the names of Hugging Face and pairs rotated by a product of matrices."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops


class LlamaRMSNorm(nn.Cell):
    """Root mean square norm."""

    def __init__(self, size):
        super().__init__()
        self.weight = Parameter(ops.ones((size,), ms.float32))

    def construct(self, x):
        return self.weight * (x / ops.sqrt(mint.mean(x * x, -1, True) + 1e-5))


class LlamaMLP(nn.Cell):
    """SwiGLU, gate and up before down."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.gate_proj = nn.Dense(dim, hidden, has_bias=False)
        self.up_proj = nn.Dense(dim, hidden, has_bias=False)
        self.down_proj = nn.Dense(hidden, dim, has_bias=False)

    def construct(self, x):
        gate = self.gate_proj(x)
        return self.down_proj(gate * mint.sigmoid(gate) * self.up_proj(x))


class LlamaAttention(nn.Cell):
    """Grouped queries: query heads folded into the rows of their key head."""

    def __init__(self, dim, heads, kv):
        super().__init__()
        self.heads, self.kv, self.size = heads, kv, dim // heads
        self.q_proj = nn.Dense(dim, dim, has_bias=False)
        self.k_proj = nn.Dense(dim, kv * self.size, has_bias=False)
        self.v_proj = nn.Dense(dim, kv * self.size, has_bias=False)
        self.o_proj = nn.Dense(dim, dim, has_bias=False)
        turn = np.zeros((self.size, self.size), np.float32)
        for i in range(0, self.size, 2):
            turn[i + 1, i], turn[i, i + 1] = -1, 1
        self.turn = Tensor(turn)

    def rope(self, x, cos, sin):
        return x * cos + mint.matmul(x, self.turn) * sin

    def construct(self, x, cos, sin, allowed):
        b, t = x.shape[:2]
        g = self.heads // self.kv
        q = mint.permute(self.q_proj(x).reshape(b, t, self.kv, g, self.size), (0, 2, 3, 1, 4))
        k = mint.permute(self.k_proj(x).reshape(b, t, self.kv, 1, self.size), (0, 2, 3, 1, 4))
        v = mint.permute(self.v_proj(x).reshape(b, t, self.kv, 1, self.size), (0, 2, 3, 1, 4))
        scores = mint.matmul(self.rope(q, cos, sin), self.rope(k, cos, sin).swapaxes(-1, -2))
        scores = mint.where(allowed, scores / self.size**0.5, Tensor(float("-inf"), ms.float32))
        y = mint.permute(mint.matmul(mint.softmax(scores, -1), v), (0, 3, 1, 2, 4))
        return self.o_proj(y.reshape(b, t, -1))


class LlamaDecoderLayer(nn.Cell):
    """Norms first, as in modeling_llama."""

    def __init__(self, dim, heads, kv, hidden):
        super().__init__()
        self.input_layernorm = LlamaRMSNorm(dim)
        self.self_attn = LlamaAttention(dim, heads, kv)
        self.post_attention_layernorm = LlamaRMSNorm(dim)
        self.mlp = LlamaMLP(dim, hidden)

    def construct(self, x, *rope):
        residual = x
        x = residual + self.self_attn(self.input_layernorm(x), *rope)
        residual = x
        return residual + self.mlp(self.post_attention_layernorm(x))


class Net(nn.Cell):
    """Two blocks; logits of the last position."""

    def __init__(self, vocab=20, dim=32, heads=4, kv=2, hidden=24, layers=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.layers = nn.CellList(
            [LlamaDecoderLayer(dim, heads, kv, hidden) for _ in range(layers)]
        )
        self.norm = LlamaRMSNorm(dim)
        self.lm_head = nn.Dense(dim, vocab, has_bias=False)
        self.size = dim // heads

    def construct(self, tokens):
        t = tokens.shape[1]
        inverse = 10000.0 ** -(np.arange(0, self.size, 2) / self.size)
        angles = np.repeat(np.outer(np.arange(t), inverse), 2, axis=1)
        cos, sin = Tensor(np.cos(angles), ms.float32), Tensor(np.sin(angles), ms.float32)
        allowed = Tensor(np.tri(t, dtype=bool))
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin, allowed)
        return self.lm_head(self.norm(x[:, -1]))
