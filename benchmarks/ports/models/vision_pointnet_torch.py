"""A small PointNet for segmentation: input transform, shared MLPs, global max feature."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class STN3d(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(3, 8, 1)
        self.bn1 = nn.BatchNorm1d(8)
        self.conv2 = nn.Conv1d(8, 12, 1)
        self.bn2 = nn.BatchNorm1d(12)
        self.fc1 = nn.Linear(12, 10)
        self.fc2 = nn.Linear(10, 9)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = torch.max(x, 2)[0]
        x = self.fc2(F.relu(self.fc1(x)))
        return x.view(-1, 3, 3) + torch.eye(3, device=x.device)


class Net(nn.Module):
    def __init__(self, k=4):
        super().__init__()
        self.stn = STN3d()
        self.conv1 = nn.Conv1d(3, 8, 1, bias=False)
        self.bn1 = nn.BatchNorm1d(8)
        self.conv2 = nn.Conv1d(8, 12, 1, bias=False)
        self.bn2 = nn.BatchNorm1d(12)
        self.seg1 = nn.Conv1d(8 + 12, 10, 1)
        self.seg2 = nn.Conv1d(10, k, 1)

    def forward(self, points):
        x = points.transpose(2, 1)
        trans = self.stn(x)
        x = torch.bmm(points, trans).transpose(2, 1)
        local = F.relu(self.bn1(self.conv1(x)))
        g = self.bn2(self.conv2(local)).max(dim=2, keepdim=True)[0]
        x = torch.cat([g.repeat(1, 1, points.shape[1]), local], 1)
        return self.seg2(F.relu(self.seg1(x)))
