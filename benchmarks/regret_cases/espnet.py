"""ESPNet (Mehta et al. 2018), with the names of its authors' weights."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

CLASSES = 20
_MEAN, _STD = (72.392, 82.909, 73.158), (45.319, 46.153, 44.915)
"""Of blue, green and red."""


class _Conv(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, dilation: int = 1) -> None:
        super().__init__()
        padding = dilation * (kernel // 2)
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return y


class _Normalised(nn.Module):
    """Batch norm and PReLU, after a convolution if `kernel` is given."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 0, stride: int = 1) -> None:
        super().__init__()
        if kernel:
            self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.bn, self.act = nn.BatchNorm2d(outputs, eps=1e-3), nn.PReLU(outputs)
        self.has_conv = kernel > 0

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.act(self.bn(self.conv(x) if self.has_conv else x))
        return y


class _Pyramid(nn.Module):
    """An efficient spatial pyramid: a reduction, five dilated convolutions, and their running sums."""

    def __init__(self, inputs: int, outputs: int, *, stride: int = 1, add: bool = False) -> None:
        super().__init__()
        width = outputs // 5
        self.c1 = _Conv(inputs, width, 3 if stride == 2 else 1, stride)
        self.d1 = _Conv(width, outputs - 4 * width, 3)
        for dilation in (2, 4, 8, 16):
            self.add_module(f"d{dilation}", _Conv(width, width, 3, dilation=dilation))
        # The authors put batch norm and PReLU side by side here, and into a module of their own there.
        self.bn: nn.Module = nn.BatchNorm2d(outputs, eps=1e-3) if stride == 2 else _Normalised(outputs, outputs)
        self.act = nn.PReLU(outputs) if stride == 2 else nn.Identity()
        self.add = add

    def forward(self, x: Tensor) -> Tensor:
        reduced = self.c1(x)
        parts = [self.d1(reduced)]
        total = torch.zeros((), device=x.device)
        for dilation in (2, 4, 8, 16):
            total = total + getattr(self, f"d{dilation}")(reduced)
            parts.append(total)
        combined = torch.cat(parts, 1)
        y: Tensor = self.act(self.bn(x + combined if self.add else combined))
        return y


class _Encoder(nn.Module):
    def __init__(self, p: int, q: int) -> None:
        super().__init__()
        self.level1, self.b1 = _Normalised(3, 16, 3, 2), _Normalised(19, 19)
        self.level2_0 = _Pyramid(19, 64, stride=2)
        self.level2 = nn.ModuleList(_Pyramid(64, 64, add=True) for _ in range(p))
        self.b2 = _Normalised(131, 131)
        self.level3_0 = _Pyramid(131, 128, stride=2)
        self.level3 = nn.ModuleList(_Pyramid(128, 128, add=True) for _ in range(q))
        self.b3, self.classifier = _Normalised(256, 256), _Conv(256, CLASSES, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features at a half and a quarter of the resolution, and scores at an eighth."""
        half = F.avg_pool2d(x, 3, 2, 1)
        first = self.level1(x)
        start = self.level2_0(self.b1(torch.cat([first, half], 1)))
        y = start
        for block in self.level2:
            y = block(y)
        second = self.b2(torch.cat([y, start, F.avg_pool2d(half, 3, 2, 1)], 1))
        y = start = self.level3_0(second)
        for block in self.level3:
            y = block(y)
        return first, second, self.classifier(self.b3(torch.cat([start, y], 1)))


class ESPNet(nn.Module):
    """uint8 frames of 480×360 to the scores of Cityscapes' classes at half the resolution."""

    def __init__(self, p: int, q: int) -> None:
        super().__init__()
        self.encoder = _Encoder(p, q)
        self.level3_C, self.br = _Conv(131, CLASSES, 1), nn.BatchNorm2d(CLASSES, eps=1e-3)
        self.up_l3 = nn.Sequential(nn.ConvTranspose2d(CLASSES, CLASSES, 2, 2, bias=False))
        self.combine_l2_l3 = nn.Sequential(_Normalised(2 * CLASSES, 2 * CLASSES), _Pyramid(2 * CLASSES, CLASSES))
        up = nn.ConvTranspose2d(CLASSES, CLASSES, 2, 2, bias=False)
        self.up_l2 = nn.Sequential(up, _Normalised(CLASSES, CLASSES))
        self.conv = _Normalised(16 + CLASSES, CLASSES, 3)
        self.classifier = nn.ConvTranspose2d(CLASSES, CLASSES, 2, 2, bias=False)

    @classmethod
    def load(cls, path: Path) -> ESPNet:
        state = {key: value.float() for key, value in load_file(path).items()}
        blocks = {key.split(".")[2] for key in state if key.startswith("encoder.level3.")}
        model = cls(2, len(blocks))
        model.load_state_dict(state, strict=False)  # the counters of batches are not in the file
        return model.eval()

    def forward(self, frames: Tensor) -> Tensor:
        x = F.interpolate(frames.flip(1).float(), size=(480, 640), mode="bilinear", align_corners=False)
        mean, std = (torch.tensor(values, device=x.device).view(3, 1, 1) for values in (_MEAN, _STD))
        first, second, coarse = self.encoder((x - mean) / std / 255)
        coarse = self.up_l3(self.br(coarse))
        medium = self.up_l2(self.combine_l2_l3(torch.cat([self.level3_C(second), coarse], 1)))
        scores = self.classifier(self.conv(torch.cat([medium, first], 1)))
        return F.interpolate(scores, size=(frames.shape[-2] // 2, frames.shape[-1] // 2), mode="bilinear")
