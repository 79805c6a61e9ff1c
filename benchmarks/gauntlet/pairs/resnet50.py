"""ResNet-50: timm and transformers."""

import torchvision_first  # noqa: F401


def build_timm():
    import timm

    return timm.create_model("resnet50")


def build_transformers():
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(ResNetConfig(num_labels=1000))
