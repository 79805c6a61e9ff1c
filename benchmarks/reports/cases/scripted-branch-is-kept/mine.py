import torch
from theirs import Net as Plain


def Net():
    return torch.jit.script(Plain())
