"""The shape of a decoder-only transformer: its numbers of parameters and operations."""

from __future__ import annotations

from dataclasses import dataclass

from dualml.planning.planner.sizes import ModelSizes


@dataclass(frozen=True)
class Shape(ModelSizes):
    """A decoder-only transformer that counts its parameters and operations; its fields are those of
    `ModelSizes`.

    Raises:
        UserError: invalid sizes.

    Example:
        >>> Shape("gpt2", 12, 768, 12, 12, 3072, 50257, 1024, tied=True).parameters
        124439808
    """

    def flops(self, batch: int, recomputed: str = "none", fused: bool = False) -> float:
        """Return the operations of matrix products in one update on ``batch`` sequences;
        ``recomputed`` is ``none``, ``selective`` or ``full`` (others: `hardware_flops`).

        For GPT with full recomputation 96·B·s·L·h²(1 + s/(6h) + V/(16Lh)) (Narayanan et al. 2021,
        equation 3; the output layer is not recomputed), without 72·B·L·s·h²(1 + s/(6h) + V/(12Lh))
        (Korthikanti et al. 2022, equation 7), selective with 4/3 of s/(6h): one more forward pass
        (their equation 8 has s/(3h), as if the backward pass were repeated, too). These count all
        of the s × s scores; ``fused`` attention omits the half that a causal mask discards.
        """
        tokens = float(batch) * self.sequence
        products, scores = self.layer_flops(fused)
        output = 2.0 * self.hidden * self.vocabulary
        again = {"none": 0.0, "selective": scores, "full": products + scores}[recomputed]
        return tokens * (self.layers * (3 * (products + scores) + again) + 3 * output)

    def layer_flops(self, fused: bool = False) -> tuple[float, float]:
        """Return the forward operations of one layer per token: in its matrices, of which a token
        passes k experts and the shared ones, and in its attention scores, of which ``fused``
        counts half. With experts in some layers only, the mean over all layers."""
        scores = (1.0 if fused else 2.0) * self.sequence * (self.queries + self.attended)
        return 2.0 * self.active_matrices, scores

    @property
    def matrices(self) -> int:
        """Elements of all matrices of one dense transformer layer together, which tensor
        parallelism splits."""
        return self.attention_matrices + self.ffn_matrix_elements(self.ffn)

    @property
    def active_matrices(self) -> float:
        """Elements of the matrices of a layer that process a token, the mean over all layers."""
        shared = self.attention_matrices + self.replicated_matrices
        if not self.experts:
            return float(shared + self.ffn_matrix_elements(self.ffn))
        passed = self.experts_per_token + self.shared_experts
        routed = self.experts * self.hidden + passed * self.ffn_matrix_elements(self.expert_width)
        dense = (self.layers - self.moe_layers) * self.ffn_matrix_elements(self.ffn)
        return shared + (self.moe_layers * routed + dense) / self.layers

    @property
    def attention_matrices(self) -> int:
        """Elements of attention's matrices in one layer that tensor parallelism splits: all, but
        with latent attention only those that lead out of the compressed vectors."""
        h, queries, out = self.hidden, self.queries, self.attended * self.hidden
        if not self.latent:
            return h * (queries + self.keys + self.values) + out
        apart = self.heads * (self.width - self.rope_width) + self.attended
        return (self.q_lora_rank or h) * queries + self.kv_lora_rank * apart + out

    @property
    def replicated_matrices(self) -> int:
        """Elements of attention's matrices in one layer that every tensor-parallel device holds:
        those that compress queries, keys and values; 0 without latent attention."""
        return self.hidden * (self.q_lora_rank + self.kv_lora_rank + self.latent * self.rope_width)

    def ffn_matrix_elements(self, width: int) -> int:
        """Return the number of elements of the weight matrices of a feed-forward part of inner
        width ``width``: three matrices if gated, else two; without biases."""
        return (3 if self.gated else 2) * self.hidden * width

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm: LayerNorm has a bias, RMSNorm has none."""
        return (2 if self.has_bias("norm") else 1) * self.hidden

    @property
    def split_biases(self) -> int:
        """Bias elements of a dense layer that tensor parallelism splits: those of matrices whose
        outputs are split. 0 without biases."""
        return self.attention_biases + self.ffn_biases(self.ffn)

    @property
    def attention_biases(self) -> int:
        """Bias elements of queries, keys and values of a layer, which tensor parallelism splits."""
        return self.has_bias("qkv") * (self.queries + self.keys + self.values)

    def ffn_biases(self, width: int) -> int:
        """Return the bias elements of the matrices that lead into a feed-forward part of ``width``
        elements; 0 without biases."""
        return self.has_bias("mlp") * (2 if self.gated else 1) * width

    @property
    def whole_parameters(self) -> int:
        """Parameters of a layer outside of its feed-forward part that every tensor-parallel device
        holds: norms, the bias behind attention, matrices that compress."""
        norms = self.norms * self.norm_parameters + self.qk_norm
        latent = self.replicated_matrices + self.latent * (self.q_lora_rank + self.kv_lora_rank)
        return norms + latent + self.has_bias("attention") * self.hidden + self.other_parameters

    @property
    def expert_parameters(self) -> int:
        """Parameters of one expert."""
        inner = self.ffn_matrix_elements(self.expert_width) + self.ffn_biases(self.expert_width)
        return inner + self.has_bias("mlp") * self.hidden

    @property
    def router_parameters(self) -> int:
        """Parameters that choose a token's experts in one layer."""
        return self.experts * (self.hidden + self.has_bias("router"))

    @property
    def layer_parameters(self) -> int:
        """Parameters of one dense layer: 12h² + 13h for GPT."""
        inner = self.matrices + self.split_biases + self.has_bias("mlp") * self.hidden
        return inner + self.whole_parameters

    @property
    def moe_layer_parameters(self) -> int:
        """Parameters of one layer with experts, all of them; without experts those of a layer."""
        if not self.experts:
            return self.layer_parameters
        attention = self.attention_matrices + self.attention_biases + self.whole_parameters
        experts = (self.experts + self.shared_experts) * self.expert_parameters
        return attention + self.router_parameters + experts

    @property
    def embedding_parameters(self) -> int:
        """Parameters in front of the layers: the embedding, its norm, and learned positions."""
        positions = self.positions or self.sequence
        return (
            self.vocabulary * self.hidden
            + self.learned_positions * positions * self.hidden
            + self.embedding_norm * self.norm_parameters
        )

    @property
    def output_parameters(self) -> int:
        """Parameters behind the layers: the last norm and the output layer, without the output
        layer if it is tied to the embedding."""
        words = 0 if self.tied else self.vocabulary * self.hidden
        return self.norm_parameters + words + self.has_bias("output") * self.vocabulary

    @property
    def parameters(self) -> int:
        """Total number of parameters, Ψ.

        For GPT 12Lh²(1 + 13/(12h) + (V + s)/(12Lh)) and one norm (Narayanan et al. 2021, equation
        2, omits the last norm, 2h).
        """
        dense = (self.layers - self.moe_layers) * self.layer_parameters
        ends = self.embedding_parameters + self.output_parameters
        return dense + self.moe_layers * self.moe_layer_parameters + ends

    @property
    def active_parameters(self) -> int:
        """Parameters that process one token: all, without the experts that it does not pass."""
        idle = self.experts - self.experts_per_token if self.experts else 0
        return self.parameters - self.moe_layers * idle * self.expert_parameters
