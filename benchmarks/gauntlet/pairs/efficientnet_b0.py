"""EfficientNet-B0 with TensorFlow's padding: efficientnet-pytorch and timm."""

import torchvision_first  # noqa: F401


def build_efficientnet_pytorch():
    from efficientnet_pytorch import EfficientNet

    return EfficientNet.from_name("efficientnet-b0")


def build_timm():
    import timm

    return timm.create_model("tf_efficientnet_b0")
