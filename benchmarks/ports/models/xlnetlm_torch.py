"""A small Transformer-XL: a language model that reads a text in segments and remembers the last ones."""

import torch
from torch import nn
from torch.nn import functional as F

SPECIAL = 3  # padding, start and unknown come first and are not scored
Z_WEIGHT = 0.02


class PositionalEmbedding(nn.Module):
    def __init__(self, demb):
        super().__init__()
        self.demb = demb

    def forward(self, pos_seq):
        inv_freq = 1 / (10000 ** (torch.arange(0.0, self.demb, 2.0) / self.demb))
        sinusoid_inp = torch.outer(pos_seq, inv_freq)
        return torch.cat([sinusoid_inp.sin(), sinusoid_inp.cos()], dim=-1)


class PositionwiseFF(nn.Module):
    def __init__(self, d_model, d_inner):
        super().__init__()
        self.CoreNet = nn.Sequential(nn.Linear(d_model, d_inner), nn.ReLU(inplace=True), nn.Linear(d_inner, d_model))
        self.layer_norm = nn.LayerNorm(d_model)

    def forward(self, inp):
        return self.layer_norm(inp + self.CoreNet(inp))


class RelMultiHeadAttn(nn.Module):
    """Attention with relative positions; the layer norm follows the residual."""

    def __init__(self, n_head, d_model, d_head):
        super().__init__()
        self.n_head = n_head
        self.d_head = d_head
        self.qkv_net = nn.Linear(d_model, 3 * n_head * d_head, bias=False)
        self.r_net = nn.Linear(d_model, n_head * d_head, bias=False)
        self.o_net = nn.Linear(n_head * d_head, d_model, bias=False)
        self.layer_norm = nn.LayerNorm(d_model)
        self.scale = 1 / (d_head**0.5)

    @staticmethod
    def _rel_shift(x):
        zero_pad = torch.zeros((x.size(0), 1, *x.size()[2:]), dtype=x.dtype)
        x_padded = torch.cat([zero_pad, x], dim=1)
        x_padded = x_padded.view(x.size(1) + 1, x.size(0), *x.size()[2:])
        return x_padded[1:].view_as(x)

    def forward(self, w, r, r_w_bias, r_r_bias, attn_mask, mems):
        qlen, bsz = w.size(0), w.size(1)
        cat = torch.cat([mems, w], 0)
        klen = cat.size(0)
        w_head_q, w_head_k, w_head_v = torch.chunk(self.qkv_net(cat), 3, dim=-1)
        w_head_q = w_head_q[-qlen:].view(qlen, bsz, self.n_head, self.d_head)
        w_head_k = w_head_k.view(klen, bsz, self.n_head, self.d_head)
        w_head_v = w_head_v.view(klen, bsz, self.n_head, self.d_head)
        r_head_k = self.r_net(r).view(klen, self.n_head, self.d_head)

        AC = torch.einsum("ibnd,jbnd->ijbn", w_head_q + r_w_bias, w_head_k)
        BD = torch.einsum("ibnd,jnd->ijbn", w_head_q + r_r_bias, r_head_k)
        attn_score = (AC + self._rel_shift(BD)) * self.scale
        attn_score = attn_score.masked_fill(attn_mask[:, :, None, None], -float("inf"))
        attn_prob = F.softmax(attn_score, dim=1)

        attn_vec = torch.einsum("ijbn,jbnd->ibnd", attn_prob, w_head_v)
        attn_vec = attn_vec.reshape(qlen, bsz, self.n_head * self.d_head)
        return self.layer_norm(w + self.o_net(attn_vec))


class DecoderLayer(nn.Module):
    def __init__(self, n_head, d_model, d_head, d_inner):
        super().__init__()
        self.dec_attn = RelMultiHeadAttn(n_head, d_model, d_head)
        self.pos_ff = PositionwiseFF(d_model, d_inner)

    def forward(self, dec_inp, r, r_w_bias, r_r_bias, attn_mask, mems):
        return self.pos_ff(self.dec_attn(dec_inp, r, r_w_bias, r_r_bias, attn_mask, mems))


class AdaptiveEmbedding(nn.Module):
    """Frequent words have wide rows, rare words narrow ones; each group is projected to the model's width."""

    def __init__(self, n_token, d_embed, d_proj, cutoff, div_val=2):
        super().__init__()
        self.d_proj = d_proj
        self.emb_scale = d_proj**0.5
        self.cutoff_ends = [0, cutoff, n_token]
        self.emb_layers = nn.ModuleList()
        self.emb_projs = nn.ParameterList()
        for i in range(2):
            d_emb_i = d_embed // div_val**i
            layer = nn.Embedding(self.cutoff_ends[i + 1] - self.cutoff_ends[i], d_emb_i)
            nn.init.normal_(layer.weight, 0.0, 0.2)
            self.emb_layers.append(layer)
            self.emb_projs.append(nn.Parameter(torch.randn(d_proj, d_emb_i) * 0.3))

    def forward(self, inp):
        inp_flat = inp.reshape(-1)
        emb_flat = torch.zeros(inp_flat.size(0), self.d_proj)
        for i in range(2):
            low, high = self.cutoff_ends[i], self.cutoff_ends[i + 1]
            indices = ((inp_flat >= low) & (inp_flat < high)).nonzero().squeeze(1)
            emb_i = self.emb_layers[i](inp_flat.index_select(0, indices) - low)
            emb_flat = emb_flat.index_copy(0, indices, F.linear(emb_i, self.emb_projs[i]))
        return emb_flat.view(*inp.size(), self.d_proj) * self.emb_scale


class Net(nn.Module):
    """Gives the logits of all segments of a text (length, batch)."""

    def __init__(self, n_token=18, n_layer=2, n_head=2, d_model=16, d_head=8, d_inner=24, tgt_len=4, mem_len=6, clamp_len=7):
        super().__init__()
        self.n_layer, self.tgt_len, self.mem_len, self.clamp_len = n_layer, tgt_len, mem_len, clamp_len
        self.word_emb = AdaptiveEmbedding(n_token, d_model, d_model, cutoff=10)
        self.pos_emb = PositionalEmbedding(d_model)
        self.r_w_bias = nn.Parameter(torch.randn(n_head, d_head) * 0.5)
        self.r_r_bias = nn.Parameter(torch.randn(n_head, d_head) * 0.5)
        self.layers = nn.ModuleList([DecoderLayer(n_head, d_model, d_head, d_inner) for _ in range(n_layer)])
        self.out_bias = nn.Parameter(torch.zeros(n_token))

    def init_mems(self, bsz):
        return [torch.empty(0, bsz, self.word_emb.d_proj) for _ in range(self.n_layer)]

    def _update_mems(self, hids, mems):
        new_mems = []
        for hid, mem in zip(hids, mems):
            cat = torch.cat([mem, hid], dim=0)
            new_mems.append(cat[max(0, cat.size(0) - self.mem_len) :].detach())
        return new_mems

    def _logits(self, hidden):
        # the output layer shares rows and projections with the embedding
        parts = []
        for layer, proj in zip(self.word_emb.emb_layers, self.word_emb.emb_projs):
            parts.append(F.linear(F.linear(hidden, proj.t()), layer.weight))
        return torch.cat(parts, dim=-1) + self.out_bias

    def segment(self, dec_inp, mems):
        qlen = dec_inp.size(0)
        mlen = mems[0].size(0)
        klen = mlen + qlen
        core_out = self.word_emb(dec_inp)
        attn_mask = torch.triu(torch.ones(qlen, klen), diagonal=1 + mlen).bool()
        pos_seq = torch.arange(klen - 1, -1, -1.0)
        pos_seq.clamp_(max=self.clamp_len)
        pos_emb = self.pos_emb(pos_seq)
        hids = []
        for layer, mem in zip(self.layers, mems):
            hids.append(core_out)
            core_out = layer(core_out, pos_emb, self.r_w_bias, self.r_r_bias, attn_mask, mem)
        return self._logits(core_out), self._update_mems(hids, mems)

    def forward(self, data):
        mems = self.init_mems(data.size(1))
        outputs = []
        for i in range(0, data.size(0), self.tgt_len):
            logits, mems = self.segment(data[i : i + self.tgt_len], mems)
            outputs.append(logits)
        return torch.cat(outputs, dim=0)


def loss(outputs, targets):
    """Cross entropy over the real words, and a z-loss that keeps the normaliser near one."""
    logits = outputs.reshape(-1, outputs.size(-1))
    target = targets.reshape(-1).long()
    log_z = torch.logsumexp(logits, dim=-1)
    nll = log_z - logits.gather(1, target.unsqueeze(1)).squeeze(1)
    real = (target >= SPECIAL).float()
    return ((nll + Z_WEIGHT * log_z**2) * real).sum() / real.sum()


class Lamb(torch.optim.Optimizer):
    """LAMB with a linear warm-up; vectors (biases, norms) neither decay nor are scaled by the trust ratio."""

    def __init__(self, params, lr=0.05, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.5, warmup=4, max_norm=2.0):
        super().__init__(
            params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, warmup=warmup, max_norm=max_norm)
        )

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p)
                    state["exp_avg_sq"] = torch.zeros_like(p)
                state["step"] += 1
                step = state["step"]
                exp_avg, exp_avg_sq = state["exp_avg"], state["exp_avg_sq"]
                exp_avg.mul_(beta1).add_(p.grad, alpha=1 - beta1)
                exp_avg_sq.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                m = exp_avg / (1 - beta1**step)
                v = exp_avg_sq / (1 - beta2**step)
                update = m / (v.sqrt() + group["eps"])
                lr = group["lr"] * min(1.0, step / group["warmup"])
                trust_ratio = 1.0
                if p.dim() > 1:
                    update = update + group["weight_decay"] * p
                    weight_norm = p.norm().clamp(0, group["max_norm"])
                    update_norm = update.norm()
                    if weight_norm > 0 and update_norm > 0:
                        trust_ratio = (weight_norm / update_norm).item()
                p.add_(update, alpha=-lr * trust_ratio)


def optimizer(parameters):
    return Lamb(parameters)
