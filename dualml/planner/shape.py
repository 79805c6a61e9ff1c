"""The shape of a decoder-only transformer, and how many parameters it has."""

from __future__ import annotations

from dataclasses import dataclass

from dualml.errors import UserError

#: Of any number in a shape: products of all of them are still exact in float64's exponent.
LARGEST = 10**9


@dataclass(frozen=True)
class Shape:
    """Sizes of a model; what only its exact count of parameters needs comes last.

    Args:
        name: how it is called.
        layers: L, transformer layers.
        hidden: h, width.
        heads: a, of attention; its key and value have ``kv_heads`` heads (Ainslie et al. 2023).
        ffn: f, width inside the feed-forward part; ``gated``: two matrices lead into it (SwiGLU,
            Shazeer 2020).
        vocabulary: V.
        sequence: s, tokens of a sample.
        tied: the output layer is the embedding's matrix.
        head_width: of one head; default h / a.
        biased: linear layers and norms have biases.
        learned_positions: a vector for each position, instead of rotating.
        dropout: masks are kept for the way back.
        batch: sequences of an update as published; 0: not said.

    Raises:
        UserError: sizes that no model has.

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
            if not 1 <= getattr(self, key) <= LARGEST:
                raise UserError(
                    f"model {self.name}: {key} is from 1 to {LARGEST:,}; "
                    f"received {getattr(self, key)}"
                )
        if not 0 <= self.batch <= LARGEST or not 0 <= self.head_width <= LARGEST:
            raise UserError(f"model {self.name}: batch and head_width are from 0 to {LARGEST:,}")
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
        """Of one head."""
        return self.head_width or self.hidden // self.heads

    @property
    def queries(self) -> int:
        """Width of all queries: h, unless ``head_width`` says otherwise."""
        return self.heads * self.width

    @property
    def keys(self) -> int:
        """Width of all keys, and of all values."""
        return self.kv_heads * self.width

    @property
    def matrices(self) -> int:
        """Elements of a layer's matrices, which tensor parallelism splits."""
        attention = 2 * self.hidden * (self.queries + self.keys)
        return attention + (3 if self.gated else 2) * self.hidden * self.ffn

    @property
    def layer_parameters(self) -> int:
        """Of one layer: 12h² + 13h for GPT."""
        biases = self.split_biases + 2 * self.hidden if self.biased else 0
        return self.matrices + biases + 2 * self.norm_parameters

    @property
    def split_biases(self) -> int:
        """Of those biases, what tensor parallelism splits: of matrices whose outputs are."""
        inner = self.queries + 2 * self.keys + (2 if self.gated else 1) * self.ffn
        return inner if self.biased else 0

    @property
    def norm_parameters(self) -> int:
        """Of one norm: LayerNorm has a bias, RMSNorm has none."""
        return (2 if self.biased else 1) * self.hidden

    @property
    def embedding_parameters(self) -> int:
        """In front of the layers: the embedding, and learned positions."""
        positions = self.sequence * self.hidden if self.learned_positions else 0
        return self.vocabulary * self.hidden + positions

    @property
    def output_parameters(self) -> int:
        """Behind the layers, without the output layer where it is tied to the embedding."""
        return self.norm_parameters + (0 if self.tied else self.vocabulary * self.hidden)

    @property
    def parameters(self) -> int:
        """Ψ. For GPT 12Lh²(1 + 13/(12h) + (V + s)/(12Lh)) and one norm (Narayanan et al. 2021,
        equation 2, leaves the last norm, 2h, out)."""
        ends = self.embedding_parameters + self.output_parameters
        return self.layers * self.layer_parameters + ends

    def flops(self, batch: int, recomputed: str = "none", fused: bool = False) -> float:
        """Of matrix products in one update on ``batch`` sequences.

        For GPT with full recomputation 96·B·s·L·h²(1 + s/(6h) + V/(16Lh)) (Narayanan et al. 2021,
        equation 3; the output layer is not recomputed), without 72·B·L·s·h²(1 + s/(6h) + V/(12Lh))
        (Korthikanti et al. 2022, equation 7), selective with 4/3 of s/(6h): one more pass forwards
        (their equation 8 has s/(3h), as if also backwards). These count all of the s × s scores;
        ``fused`` attention leaves out the half that a causal mask throws away.
        """
        tokens = float(batch) * self.sequence
        products, scores = self.layer_flops(fused)
        output = 2.0 * self.hidden * self.vocabulary
        again = {"none": 0.0, "selective": scores, "full": products + scores}[recomputed]
        return tokens * (self.layers * (3 * (products + scores) + again) + 3 * output)

    def layer_flops(self, fused: bool = False) -> tuple[float, float]:
        """Of one layer and token, forwards: in its matrices, and in its scores."""
        return 2.0 * self.matrices, (2.0 if fused else 4.0) * self.sequence * self.queries
