"""ViT-B/16: timm and transformers."""

import torchvision_first  # noqa: F401


def build_timm():
    import timm

    return timm.create_model("vit_base_patch16_224")


def build_transformers():
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(num_labels=1000))


def build_mended():
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(num_labels=1000, layer_norm_eps=1e-6))
