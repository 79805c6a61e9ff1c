"""The shape of a decoder-only transformer, and its number of parameters."""

from __future__ import annotations

from dataclasses import dataclass

from dualml.common.errors import UserError

#: Largest size in a shape: products of sizes stay within the range of float64.
MAX_SIZE = 10**9


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder-only transformer; fields needed only for the exact number of parameters
    come last.

    Args:
        name: name of the model.
        layers: L, transformer layers.
        hidden: h, model width.
        heads: a, attention heads.
        kv_heads: heads of keys and values (Ainslie et al. 2023).
        ffn: f, width inside the feed-forward part.
        vocabulary: V.
        sequence: s, tokens per sample.
        gated: whether two matrices lead into the feed-forward part (SwiGLU, Shazeer 2020).
        tied: whether the output layer uses the embedding's matrix.
        head_width: width of one head; default h / a.
        biased: whether linear layers and norms have biases.
        learned_positions: whether there is a learned vector per position, instead of rotary
            positions.
        dropout: whether dropout masks are saved for the backward pass.
        batch: published sequences per update; 0: unknown.

    Raises:
        UserError: invalid sizes.

    Example:
        >>> Shape("gpt2", 12, 768, 12, 12, 3072, 50257, 1024, tied=True).parameters
        124439808
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    sequence: int
    gated: bool = False
    tied: bool = False
    head_width: int = 0
    biased: bool = True
    learned_positions: bool = True
    dropout: bool = True
    batch: int = 0

    def __post_init__(self) -> None:
        sizes = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocabulary", "sequence")
        for key in sizes:
            if not 1 <= getattr(self, key) <= MAX_SIZE:
                raise UserError(
                    f"model {self.name}: {key} is from 1 to {MAX_SIZE:,}; "
                    f"received {getattr(self, key)}"
                )
        if not 0 <= self.batch <= MAX_SIZE or not 0 <= self.head_width <= MAX_SIZE:
            raise UserError(f"model {self.name}: batch and head_width are from 0 to {MAX_SIZE:,}")
        if self.heads % self.kv_heads:
            raise UserError(
                f"model {self.name}: {self.kv_heads} heads of keys and values do not divide "
                f"{self.heads} heads; choose a divisor"
            )
        if not self.head_width and self.hidden % self.heads:
            raise UserError(
                f"model {self.name}: {self.heads} heads do not divide hidden {self.hidden}; "
                "say head_width"
            )

    @property
    def width(self) -> int:
        """Width of one attention head, in elements."""
        return self.head_width or self.hidden // self.heads

    @property
    def queries(self) -> int:
        """Total width of the queries: h, unless ``head_width`` says otherwise."""
        return self.heads * self.width

    @property
    def keys(self) -> int:
        """Total width of the keys of all key-value heads, equal to that of the values."""
        return self.kv_heads * self.width

    @property
    def matrices(self) -> int:
        """Elements of all matrices of one transformer layer together, which tensor parallelism
        splits."""
        attention = 2 * self.hidden * (self.queries + self.keys)
        return attention + (3 if self.gated else 2) * self.hidden * self.ffn

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer: 12h² + 13h for GPT."""
        biases = self.split_biases + 2 * self.hidden if self.biased else 0
        return self.matrices + biases + 2 * self.norm_parameters

    @property
    def split_biases(self) -> int:
        """Bias elements of a layer that tensor parallelism splits: those of matrices whose outputs
        are split. 0 without biases."""
        inner = self.queries + 2 * self.keys + (2 if self.gated else 1) * self.ffn
        return inner if self.biased else 0

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm: LayerNorm has a bias, RMSNorm has none."""
        return (2 if self.biased else 1) * self.hidden

    @property
    def embedding_parameters(self) -> int:
        """Parameters in front of the layers: the embedding, and learned positions."""
        positions = self.sequence * self.hidden if self.learned_positions else 0
        return self.vocabulary * self.hidden + positions

    @property
    def output_parameters(self) -> int:
        """Parameters behind the layers: the last norm and the output layer, without the output
        layer if it is tied to the embedding."""
        return self.norm_parameters + (0 if self.tied else self.vocabulary * self.hidden)

    @property
    def parameters(self) -> int:
        """Total number of parameters, Ψ.

        For GPT 12Lh²(1 + 13/(12h) + (V + s)/(12Lh)) and one norm (Narayanan et al. 2021, equation
        2, omits the last norm, 2h).
        """
        ends = self.embedding_parameters + self.output_parameters
        return self.layers * self.layer_parameters + ends

    def flops(self, batch: int, recomputed: str = "none", fused: bool = False) -> float:
        """Return the operations of matrix products in one update on ``batch`` sequences.

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
        """Return the forward operations of one layer per token: in its matrices, and in its
        attention scores, of which ``fused`` counts half."""
        return 2.0 * self.matrices, (2.0 if fused else 4.0) * self.sequence * self.queries
