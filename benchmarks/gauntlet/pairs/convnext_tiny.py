"""ConvNeXt-T: timm and transformers."""

import torchvision_first  # noqa: F401


def build_timm():
    import timm

    return timm.create_model("convnext_tiny")


def build_transformers():
    from transformers import ConvNextConfig, ConvNextForImageClassification

    return ConvNextForImageClassification(ConvNextConfig(num_labels=1000))


def build_mended():
    from transformers import ConvNextConfig, ConvNextForImageClassification

    return ConvNextForImageClassification(ConvNextConfig(num_labels=1000, layer_norm_eps=1e-6))
