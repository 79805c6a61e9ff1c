"""A Transformer encoder: x-transformers and `torch.nn`."""

import torchvision_first  # noqa: F401


def build_x_transformers():
    from x_transformers import Encoder

    return Encoder(dim=512, depth=6, heads=8, ff_no_bias=True)


def build_torch():
    from torch import nn

    layer = nn.TransformerEncoderLayer(
        512, 8, 2048, dropout=0.0, activation="gelu", batch_first=True, norm_first=True, bias=False
    )
    norm = nn.LayerNorm(512, bias=False)
    return nn.TransformerEncoder(layer, 6, norm, enable_nested_tensor=False)


def build_mended():
    from x_transformers import Encoder

    return Encoder(dim=512, depth=6, heads=8, ff_no_bias=True, norm_add_unit_offset=False)
