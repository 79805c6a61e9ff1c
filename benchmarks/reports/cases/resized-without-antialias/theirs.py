import torch
from torch import nn


class Prep(nn.Module):
    def forward(self, images):
        x = nn.functional.interpolate(
            images / 255, size=(20, 20), mode="bilinear", align_corners=False, antialias=True
        )
        x = x[:, :, 2:18, 2:18]
        mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
        return (x - mean) / torch.tensor([0.229, 0.224, 0.225])[:, None, None]
