"""A small stacked hourglass for keypoints, with two supervised heads and soft-argmax coordinates."""

import torch
from torch import nn
from torch.nn import functional as F

SIZE = 16  # width and height of a heatmap
STRIDE = 2  # image pixels of a heatmap cell
SIGMA = 1.5
TOP_K = 3
CONFIDENT = 8  # annotations with less confidence (of 31) are not used


class Residual(nn.Module):
    """Pre-activation block; a 1x1 convolution adapts the width of the shortcut."""

    def __init__(self, inp_dim, out_dim):
        super().__init__()
        self.relu = nn.ReLU()
        self.bn1 = nn.BatchNorm2d(inp_dim)
        self.conv1 = nn.Conv2d(inp_dim, out_dim, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_dim)
        self.conv2 = nn.Conv2d(out_dim, out_dim, 3, padding=1, bias=False)
        self.skip_layer = nn.Conv2d(inp_dim, out_dim, 1, bias=False) if inp_dim != out_dim else None

    def forward(self, x):
        residual = x if self.skip_layer is None else self.skip_layer(x)
        out = self.conv1(self.relu(self.bn1(x)))
        out = self.conv2(self.relu(self.bn2(out)))
        return out + residual


class Hourglass(nn.Module):
    def __init__(self, n, f):
        super().__init__()
        self.up1 = Residual(f, f)
        self.pool1 = nn.MaxPool2d(2, 2)
        self.low1 = Residual(f, f)
        self.low2 = Hourglass(n - 1, f) if n > 1 else Residual(f, f)
        self.up2 = nn.Upsample(scale_factor=2, mode="nearest")

    def forward(self, x):
        up1 = self.up1(x)
        low = self.low2(self.low1(self.pool1(x)))
        return up1 + self.up2(low)


class Head(nn.Module):
    """Features and heatmaps."""

    def __init__(self, f, joints):
        super().__init__()
        self.conv = nn.Conv2d(f, f, 1, bias=False)
        self.bn = nn.BatchNorm2d(f)
        self.out = nn.Conv2d(f, joints, 1)

    def forward(self, x):
        feature = F.relu(self.bn(self.conv(x)))
        return feature, self.out(feature)


def soft_argmax(heatmaps, beta):
    """Expected position (x, y) of each joint, from -1 to 1 between the centres of the outer cells."""
    b, j, h, w = heatmaps.shape
    prob = F.softmax(beta * heatmaps.view(b, j, -1), dim=-1).view(b, j, h, w)
    xs = torch.linspace(-1, 1, w)
    ys = torch.linspace(-1, 1, h)
    x = (prob.sum(dim=2) * xs).sum(dim=-1)
    y = (prob.sum(dim=3) * ys).sum(dim=-1)
    return torch.stack([x, y], dim=-1)


class Net(nn.Module):
    """Outputs both heads' heatmaps and the last one's coordinates."""

    def __init__(self, joints=6, f=12, beta=4.0):
        super().__init__()
        self.beta = beta
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.res = Residual(8, f)
        self.hourglass = Hourglass(2, f)
        self.head1 = Head(f, joints)
        self.merge_features = nn.Conv2d(f, f, 1, bias=False)
        self.merge_preds = nn.Conv2d(joints, f, 1, bias=False)
        self.res2 = Residual(f, f)
        self.head2 = Head(f, joints)

    def forward(self, imgs):
        x = self.res(F.relu(self.bn(self.conv(imgs))))
        feature, heat1 = self.head1(self.hourglass(x))
        x = x + self.merge_preds(heat1) + self.merge_features(feature)
        _, heat2 = self.head2(self.res2(x))
        return heat1, heat2, soft_argmax(heat2, self.beta)


def render(xy):
    """Gaussians around positions (x, y) in heatmap cells."""
    grid = torch.arange(SIZE, dtype=torch.float32)
    dx = grid - xy[..., 0:1]
    dy = grid - xy[..., 1:2]
    d2 = dy[..., :, None] ** 2 + dx[..., None, :] ** 2
    return torch.exp(-d2 / (2 * SIGMA**2))


def loss(outputs, targets):
    """Targets (batch, joints, 3): x and y in pixels of the image, and the annotation's confidence from 0 to 31."""
    heat1, heat2, coords = outputs
    xy = targets[..., :2].float() / STRIDE
    conf = targets[..., 2].float()
    weight = torch.where(conf < CONFIDENT, torch.zeros_like(conf), conf / 31)
    truth = render(xy)
    # all joints for the first head, the hardest ones of each image for the second
    each1 = ((heat1 - truth) ** 2).mean(dim=(2, 3)) * weight
    each2 = ((heat2 - truth) ** 2).mean(dim=(2, 3)) * weight
    hard, _ = torch.topk(each2, k=TOP_K, dim=1)
    goal = 2 * xy / (SIZE - 1) - 1
    near = F.smooth_l1_loss(coords, goal, beta=0.2, reduction="none").sum(-1)
    near = (near * weight).sum() / (weight.sum() + 1e-6)
    return each1.mean() + hard.sum(dim=1).div(TOP_K).mean() + 0.25 * near


class CentredRMSprop(torch.optim.Optimizer):
    """RMSprop with the gradient's mean taken out of its square and with momentum."""

    def __init__(self, params, lr=2e-3, alpha=0.9, eps=1e-3, momentum=0.9, weight_decay=1e-3):
        super().__init__(params, dict(lr=lr, alpha=alpha, eps=eps, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            alpha = group["alpha"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["square_avg"] = torch.zeros_like(p)
                    state["grad_avg"] = torch.zeros_like(p)
                    state["momentum_buffer"] = torch.zeros_like(p)
                grad = p.grad.add(p, alpha=group["weight_decay"])
                square_avg, grad_avg, buf = state["square_avg"], state["grad_avg"], state["momentum_buffer"]
                square_avg.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
                grad_avg.mul_(alpha).add_(grad, alpha=1 - alpha)
                avg = square_avg.addcmul(grad_avg, grad_avg, value=-1).sqrt().add_(group["eps"])
                buf.mul_(group["momentum"]).addcdiv_(grad, avg)
                p.add_(buf, alpha=-group["lr"])


def optimizer(parameters):
    return CentredRMSprop(parameters)
