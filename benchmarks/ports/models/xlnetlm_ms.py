"""A small Transformer-XL: a language model that reads a text in segments and remembers the last ones."""

import math

import mindspore as ms
from mindspore import Parameter, nn, ops
from mindspore.common.initializer import Normal, initializer

SPECIAL = 3  # padding, start and unknown come first and are not scored
Z_WEIGHT = 0.02


class PositionalEmbedding(nn.Cell):
    """Sines in the first half, cosines in the second."""

    def __init__(self, width):
        super().__init__()
        self.width = width

    def construct(self, positions):
        exponent = ops.arange(0, self.width, 2) / self.width
        inv_freq = 1 / ops.pow(10000.0, exponent)
        angle = positions.expand_dims(1) * inv_freq.expand_dims(0)
        return ops.cat((ops.sin(angle), ops.cos(angle)), axis=-1)


class FeedForward(nn.Cell):
    def __init__(self, d_model, d_inner):
        super().__init__()
        self.net = nn.SequentialCell(nn.Dense(d_model, d_inner), nn.ReLU(), nn.Dense(d_inner, d_model))
        self.layer_norm = nn.LayerNorm((d_model,), epsilon=1e-5)

    def construct(self, x):
        return self.layer_norm(x + self.net(x))


class RelativeAttention(nn.Cell):
    """Attention with relative positions; tensors are (length, batch, heads, width)."""

    def __init__(self, n_head, d_model, d_head):
        super().__init__()
        self.n_head = n_head
        self.d_head = d_head
        self.qkv_net = nn.Dense(d_model, 3 * n_head * d_head, has_bias=False)
        self.r_net = nn.Dense(d_model, n_head * d_head, has_bias=False)
        self.o_net = nn.Dense(n_head * d_head, d_model, has_bias=False)
        self.layer_norm = nn.LayerNorm((d_model,), epsilon=1e-5)
        self.scale = 1 / math.sqrt(d_head)

    def rel_shift(self, x):
        """x is (batch, heads, query, key); row i moves to the left so that distances meet their keys."""
        b, n, q, k = x.shape
        padded = ops.cat((ops.zeros((b, n, q, 1), x.dtype), x), axis=-1)
        return padded.reshape(b, n, k + 1, q)[:, :, 1:].reshape(b, n, q, k)

    def construct(self, w, r, u, v, mask, mem):
        qlen, bsz, d_model = w.shape
        context = w if mem is None else ops.cat((mem, w), axis=0)
        klen = context.shape[0]
        head_q, head_k, head_v = ops.chunk(self.qkv_net(context), 3, axis=-1)
        head_q = head_q[klen - qlen:].reshape(qlen, bsz, self.n_head, self.d_head)
        head_k = head_k.reshape(klen, bsz, self.n_head, self.d_head)
        head_v = head_v.reshape(klen, bsz, self.n_head, self.d_head)
        head_r = self.r_net(r).reshape(klen, self.n_head, self.d_head)

        content = ops.matmul((head_q + u).transpose(1, 2, 0, 3), head_k.transpose(1, 2, 3, 0))
        position = ops.matmul((head_q + v).transpose(1, 2, 0, 3), head_r.transpose(1, 2, 0))
        score = (content + self.rel_shift(position)) * self.scale
        score = ops.masked_fill(score, mask, -1e30)
        prob = ops.softmax(score, axis=-1)
        vec = ops.matmul(prob, head_v.transpose(1, 2, 0, 3))
        vec = vec.transpose(2, 0, 1, 3).reshape(qlen, bsz, self.n_head * self.d_head)
        return self.layer_norm(w + self.o_net(vec))


class DecoderLayer(nn.Cell):
    def __init__(self, n_head, d_model, d_head, d_inner):
        super().__init__()
        self.dec_attn = RelativeAttention(n_head, d_model, d_head)
        self.pos_ff = FeedForward(d_model, d_inner)

    def construct(self, x, r, u, v, mask, mem):
        return self.pos_ff(self.dec_attn(x, r, u, v, mask, mem))


class AdaptiveEmbedding(nn.Cell):
    """Frequent words have wide rows, rare words narrow ones; each group is projected to the model's width."""

    def __init__(self, n_token, d_embed, d_proj, cutoff):
        super().__init__()
        self.cutoff = cutoff
        self.scale = math.sqrt(d_proj)
        self.head = nn.Embedding(cutoff, d_embed, embedding_table=Normal(0.2))
        self.tail = nn.Embedding(n_token - cutoff, d_embed // 2, embedding_table=Normal(0.2))
        self.head_proj = Parameter(initializer(Normal(0.3), (d_proj, d_embed)))
        self.tail_proj = Parameter(initializer(Normal(0.3), (d_proj, d_embed // 2)))

    def construct(self, ids):
        frequent = ids < self.cutoff
        head = ops.matmul(self.head(ops.where(frequent, ids, ops.zeros_like(ids))), self.head_proj.T)
        tail = ops.matmul(self.tail(ops.where(frequent, ops.zeros_like(ids), ids - self.cutoff)), self.tail_proj.T)
        return ops.where(frequent.expand_dims(-1), head, tail) * self.scale


class Net(nn.Cell):
    """Gives the logits of all segments of a text (length, batch)."""

    def __init__(self, n_token=18, n_layer=2, n_head=2, d_model=16, d_head=8, d_inner=24, tgt_len=4, mem_len=6, clamp_len=7):
        super().__init__()
        self.n_layer = n_layer
        self.tgt_len = tgt_len
        self.mem_len = mem_len
        self.clamp_len = clamp_len
        self.word_emb = AdaptiveEmbedding(n_token, d_model, d_model, 10)
        self.pos_emb = PositionalEmbedding(d_model)
        self.r_w_bias = Parameter(initializer(Normal(0.5), (n_head, d_head)), name="r_w_bias")
        self.r_r_bias = Parameter(initializer(Normal(0.5), (n_head, d_head)), name="r_r_bias")
        self.layers = nn.CellList([DecoderLayer(n_head, d_model, d_head, d_inner) for _ in range(n_layer)])
        self.out_bias = Parameter(initializer("zeros", (n_token,)), name="out_bias")

    def update_memory(self, hids, mems):
        new = []
        for hid, mem in zip(hids, mems):
            both = hid if mem is None else ops.cat((mem, hid), axis=0)
            start = max(0, both.shape[0] - self.mem_len)
            new.append(ops.stop_gradient(both[start:]))
        return new

    def logits(self, hidden):
        """The output layer shares rows and projections with the embedding."""
        emb = self.word_emb
        head = ops.matmul(ops.matmul(hidden, emb.head_proj), emb.head.embedding_table.T)
        tail = ops.matmul(ops.matmul(hidden, emb.tail_proj), emb.tail.embedding_table.T)
        return ops.cat((head, tail), axis=-1) + self.out_bias

    def segment(self, ids, mems):
        qlen = ids.shape[0]
        mlen = 0 if mems[0] is None else mems[0].shape[0]
        klen = mlen + qlen
        x = self.word_emb(ids)
        mask = ops.triu(ops.ones((qlen, klen), ms.float32), 1 + mlen) > 0
        positions = ops.arange(klen - 1, -1, -1).astype(ms.float32)
        positions = ops.clamp(positions, max=self.clamp_len)
        r = self.pos_emb(positions)
        hids = []
        for layer, mem in zip(self.layers, mems):
            hids.append(x)
            x = layer(x, r, self.r_w_bias, self.r_r_bias, mask, mem)
        return self.logits(x), self.update_memory(hids, mems)

    def construct(self, data):
        mems = [None] * self.n_layer
        outputs = []
        for i in range(0, data.shape[0], self.tgt_len):
            logits, mems = self.segment(data[i:i + self.tgt_len], mems)
            outputs.append(logits)
        return ops.cat(outputs, axis=0)


def loss(outputs, targets):
    """Cross entropy over the real words, and a z-loss that keeps the normaliser near one."""
    logits = outputs.reshape(-1, outputs.shape[-1])
    target = targets.reshape(-1)
    log_z = ops.logsumexp(logits, -1)
    nll = log_z - ops.gather_elements(logits, 1, target.expand_dims(1)).squeeze(1)
    real = (target >= SPECIAL).astype(ms.float32)
    return ((nll + Z_WEIGHT * ops.square(log_z)) * real).sum() / real.sum()


class Lamb(nn.Optimizer):
    """LAMB with a linear warm-up; vectors (biases, norms) neither decay nor are scaled by the trust ratio."""

    def __init__(self, params, lr=0.05, beta1=0.9, beta2=0.999, eps=1e-6, decay=0.5, warmup=4, max_norm=2.0):
        super().__init__(lr, params)
        self.lr = lr
        self.beta1 = beta1
        self.beta2 = beta2
        self.eps = eps
        self.decay = decay
        self.warmup = warmup
        self.max_norm = max_norm
        self.count = 0
        self.m = self.parameters.clone(prefix="m", init="zeros")
        self.v = self.parameters.clone(prefix="v", init="zeros")

    def construct(self, grads):
        self.count += 1
        lr = self.lr * min(1.0, self.count / self.warmup)
        for p, m, v, g in zip(self.parameters, self.m, self.v, grads):
            ops.assign(m, self.beta1 * m + (1 - self.beta1) * g)
            ops.assign(v, self.beta2 * v + (1 - self.beta2) * g * g)
            m_hat = m / (1 - self.beta1**self.count)
            v_hat = v / (1 - self.beta2**self.count)
            update = m_hat / (ops.sqrt(v_hat) + self.eps)
            ratio = 1.0
            if p.ndim > 1:
                update = update + self.decay * p
                w_norm = float(ops.clamp(ops.norm(p), 0, self.max_norm))
                u_norm = float(ops.norm(update))
                ratio = w_norm / u_norm if w_norm > 0 and u_norm > 0 else 1.0
            ops.assign(p, p - lr * ratio * update)
        return True


def optimizer(parameters):
    return Lamb(parameters)
