"""Small networks of five families with weights and statistics that matter, and their exports by torch."""

import logging
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn


class UNet(nn.Module):
    """Two steps down and up again, with skips; its head gives a map of logits."""

    def __init__(self) -> None:
        super().__init__()

        def block(inputs: int, outputs: int) -> nn.Sequential:
            layers: list[nn.Module] = []
            for channels in (inputs, outputs):
                layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
            return nn.Sequential(*layers)

        self.down, self.bottom, self.join = block(3, 8), block(8, 16), block(16, 8)
        self.pool, self.up, self.head = nn.MaxPool2d(2), nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.down(x)
        coarse = self.up(self.bottom(self.pool(fine)))
        return self.head(self.join(torch.cat([coarse, fine], 1)))


def build(family: str) -> nn.Module:
    models = pytest.importorskip("torchvision.models", reason="torchvision is not installed")
    if family == "resnet":
        return models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=7)
    if family == "mobilenet":
        return models.MobileNetV2(7, 0.25, [[1, 16, 1, 1], [6, 24, 2, 2]])
    if family == "densenet":
        return models.DenseNet(8, (2, 2), 16, num_classes=7)
    if family == "efficientnet":
        config = models.efficientnet.MBConvConfig
        blocks = [config(1, 3, 1, 16, 8, 1, 1, 1), config(4, 5, 2, 8, 16, 2, 1, 1)]
        return models.EfficientNet(blocks, 0.2, num_classes=7, last_channel=64)
    return UNet()


FAMILIES = ["resnet", "mobilenet", "densenet", "efficientnet", "unet"]


def images(n: int, *, seed: int = 0, shifted: bool = False) -> Tensor:
    x = torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(seed))
    return 1.5 * x + 0.7 if shifted else x


def network(family: str, *, eps: float | None = None) -> nn.Module:
    """With random affine parameters, and the statistics of some images."""
    torch.manual_seed(0)
    model = build(family)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.weight, 1, 0.3)
            nn.init.normal_(layer.bias, 0, 0.3)
            layer.eps = layer.eps if eps is None else eps
    model.train()
    with torch.no_grad():
        for seed in range(2):
            model(images(16, seed=seed))
    return model.eval()


def export(
    model: nn.Module, path: Path, *, dynamo: bool = False, example: Tensor | None = None, **options: object
) -> Path:
    """By one of torch's two exporters, with a batch of any size; BatchNormalization nodes are kept by default."""
    example = images(4) if example is None else example
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        if dynamo:
            pytest.importorskip("onnxscript", reason="onnxscript is not installed")
            options = {"optimize": False, "dynamic_shapes": ({0: torch.export.Dim("n", min=2, max=64)},), **options}
            torch.onnx.export(model, (example,), path, dynamo=True, verbose=False, input_names=["x"], **options)
        else:
            options = {"training": torch.onnx.TrainingMode.PRESERVE, "dynamic_axes": {"x": {0: "n"}}, **options}
            torch.onnx.export(model, (example,), path, dynamo=False, input_names=["x"], **options)
    return path
