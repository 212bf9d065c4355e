"""ResNet v1 (He et al. 2015) with a choice of normalisation: ResNet-20 for CIFAR, ResNet-50 for ImageNet.

A block computes y = relu(x' + f(x)). f is a chain of convolutions, each followed by a normalisation; x' is the input
or, if the shape changes, its 1×1 projection. "v1" means that the first convolution of a block has the stride, also in
bottlenecks (torchvision's networks, "v1.5", put it on the 3×3 convolution).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .normalisation import Normalisation, find_normalisation


class Block(nn.Module):
    """One residual block: two 3×3 convolutions, or a bottleneck of 1×1, 3×3 and 1×1 (with 4 × width outputs)."""

    def __init__(
        self, inputs: int, width: int, stride: int, *, bottleneck: bool, scheme: Normalisation, eps: float
    ) -> None:
        super().__init__()
        kernels = (1, 3, 1) if bottleneck else (3, 3)
        outputs = 4 * width if bottleneck else width
        self.depth = len(kernels)
        previous = inputs
        for position, kernel in enumerate(kernels, start=1):
            last = position == self.depth
            channels = outputs if last else width
            step = stride if position == 1 else 1
            conv = scheme.conv(previous, channels, kernel, stride=step, padding=kernel // 2, bias=False)
            self.add_module(f"conv{position}", conv)
            self.add_module(f"norm{position}", (scheme.branch_end if last else scheme.norm)(channels, eps))
            previous = channels
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inputs != outputs:
            projection = scheme.conv(inputs, outputs, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(projection, scheme.shortcut(outputs, eps))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        for position in range(1, self.depth):
            x = F.relu(self._normalised(position, x))
        # A norm's output is not overwritten, since hooks may keep it; the sum may be.
        return F.relu(self._normalised(self.depth, x) + shortcut, inplace=True)

    def _normalised(self, position: int, x: Tensor) -> Tensor:
        convolved = getattr(self, f"conv{position}")(x)
        normalised: Tensor = getattr(self, f"norm{position}")(convolved)
        return normalised


class ResNet(nn.Module):
    """A stem, stages of blocks, global average pooling and a linear layer.

    The first block of every stage but the first halves the feature map. `embed` gives the input of the linear layer.
    """

    def __init__(
        self,
        blocks: Sequence[int],
        widths: Sequence[int],
        *,
        classes: int,
        norm: str,
        eps: float,
        bottleneck: bool = False,
        imagenet_stem: bool = False,
    ) -> None:
        super().__init__()
        scheme = find_normalisation(norm)
        stem = (7, 2, 3) if imagenet_stem else (3, 1, 1)
        # Fixup's bias before the first convolution would only shift the image.
        first = nn.Conv2d if scheme.fixup else scheme.conv
        self.conv1 = first(3, widths[0], *stem, bias=False)
        self.norm1 = scheme.norm(widths[0], eps)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if imagenet_stem else nn.Identity()
        self.stages = len(blocks)
        inputs = widths[0]
        for stage, (count, width) in enumerate(zip(blocks, widths, strict=True), start=1):
            chain = []
            for position in range(count):
                stride = 2 if stage > 1 and position == 0 else 1
                chain.append(Block(inputs, width, stride, bottleneck=bottleneck, scheme=scheme, eps=eps))
                inputs = 4 * width if bottleneck else width
            self.add_module(f"layer{stage}", nn.Sequential(*chain))
        self.before_linear = scheme.before_linear(inputs, eps) if scheme.before_linear else nn.Identity()
        self.fc = nn.Linear(inputs, classes)
        self._initialise(scheme, sum(blocks))

    def embed(self, x: Tensor) -> Tensor:
        """The features [N, C] that the linear layer turns into logits."""
        x = self.maxpool(F.relu(self.norm1(self.conv1(x))))
        for stage in range(1, self.stages + 1):
            x = getattr(self, f"layer{stage}")(x)
        embedded: Tensor = self.before_linear(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return embedded

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.embed(x))
        return logits

    @torch.no_grad()
    def _initialise(self, scheme: Normalisation, branches: int) -> None:
        """He's initialisation; for Fixup, the m convolutions of a branch are scaled by L^(−1/(2m−2)), the last is 0."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if not scheme.fixup:
            return
        for block in self.modules():
            if isinstance(block, Block):
                for position in range(1, block.depth):
                    getattr(block, f"conv{position}").weight.mul_(branches ** (-1 / (2 * block.depth - 2)))
                nn.init.zeros_(getattr(block, f"conv{block.depth}").weight)
        if scheme.before_linear is None:
            nn.init.zeros_(self.fc.weight)
            nn.init.zeros_(self.fc.bias)


def resnet20(norm: str = "batch", *, eps: float = 1e-3, classes: int = 10) -> ResNet:
    """ResNet-20 v1 for 32×32 images: 3 stages of 3 blocks with 16, 32 and 64 channels, 0.27 M parameters.

    `norm` is one of `NORMALISATIONS`, such as "batch" or "group", and `eps` that of its layers.
    """
    return ResNet((3, 3, 3), (16, 32, 64), classes=classes, norm=norm, eps=eps)


def resnet50(norm: str = "batch", *, eps: float = 1e-3, classes: int = 1000) -> ResNet:
    """ResNet-50 v1 for 224×224 images, 25.6 M parameters; `norm` and `eps` as in `resnet20`."""
    return ResNet(
        (3, 4, 6, 3), (64, 128, 256, 512), classes=classes, norm=norm, eps=eps, bottleneck=True, imagenet_stem=True
    )
