"""Swin-T: timm and transformers, without stochastic depth."""

import torchvision_first  # noqa: F401


def build_timm():
    import timm

    return timm.create_model("swin_tiny_patch4_window7_224", drop_path_rate=0.0)


def build_transformers():
    from transformers import SwinConfig, SwinForImageClassification

    return SwinForImageClassification(SwinConfig(num_labels=1000, drop_path_rate=0.0))
