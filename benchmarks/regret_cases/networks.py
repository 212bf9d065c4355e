"""The trained networks of the regret table: small, each trained in a minute or two, with batch norm everywhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from predbn.common import DataError

from .data import Data, load


def _conv_bn(inputs: int, outputs: int, stride: int = 1, *, kernel: int = 3, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU())


class Scaled(nn.Module):
    """Pictures from [0, 1] to about [-2, 2], in front of a network."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - 0.5) / 0.25


def _head(features: int, classes: int, *, grid: int = 1, normalised: bool = False) -> nn.Sequential:
    """An average over the picture, or over each part of a grid, batch norm if wanted, and a linear layer."""
    features *= grid**2
    norm = nn.BatchNorm1d(features) if normalised else nn.Identity()
    return nn.Sequential(nn.AdaptiveAvgPool2d(grid), nn.Flatten(), norm, nn.Linear(features, classes))


def cnn(widths: tuple[int, ...], strides: tuple[int, ...], *, grid: int = 1, pooled_norm: bool = False) -> nn.Module:
    """For grey pictures of ten classes; with `pooled_norm` a batch norm follows the average pooling."""
    layers: list[nn.Module] = [Scaled()]
    channels = 1
    for width, stride in zip(widths, strides, strict=True):
        layers.append(_conv_bn(channels, width, stride))
        channels = width
    return nn.Sequential(*layers, _head(channels, 10, grid=grid, normalised=pooled_norm))


class _Residual(nn.Module):
    """Batch norm before each convolution (He et al. 2016)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            *(nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1, bias=False)),
            *(nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1, bias=False)),
        )

    def forward(self, x: Tensor) -> Tensor:
        branch: Tensor = self.branch(x)
        return x + branch


def residual(width: int = 24) -> nn.Module:
    stem = nn.Conv2d(1, width, 5, stride=2, padding=2, bias=False)
    end = nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    linear = nn.Linear(width * 49, 10)
    return nn.Sequential(Scaled(), stem, _Residual(width), _Residual(width), end, linear)


def mlp(features: int, classes: int, widths: tuple[int, ...], *, input_norm: bool = False) -> nn.Module:
    """Linear layers with batch norm and ReLU, without a bias in front of the batch norm."""
    layers: list[nn.Module] = [nn.Flatten(), nn.BatchNorm1d(features) if input_norm else nn.Identity()]
    for width in widths:
        layers += [nn.Linear(features, width, bias=False), nn.BatchNorm1d(width), nn.ReLU()]
        features = width
    return nn.Sequential(*layers, nn.Linear(features, classes))


def conv1d(channels: int, classes: int, widths: tuple[int, ...], kernel: int = 5) -> nn.Module:
    """Convolutions over time with stride 2, and an average over time."""
    layers: list[nn.Module] = []
    for width in widths:
        conv = nn.Conv1d(channels, width, kernel, stride=2, padding=kernel // 2, bias=False)
        layers += [conv, nn.BatchNorm1d(width), nn.ReLU()]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(channels, classes))


def spectrogram_cnn(classes: int) -> nn.Module:
    """Convolutions over bands and time, with a spectrum [C, T] as a picture of one channel."""
    blocks = [_conv_bn(1, 12, 2), _conv_bn(12, 24, 2), _conv_bn(24, 48, 2)]
    return nn.Sequential(nn.Unflatten(1, (1, 40)), *blocks, _head(48, classes))


class _Basic(nn.Module):
    """Two 3×3 convolutions; a 1×1 convolution on the shortcut where the shape changes (He et al. 2015)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.branch = nn.Sequential(_conv_bn(inputs, width, stride), conv, nn.BatchNorm2d(width))
        projection = (nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))
        self.shortcut = nn.Identity() if inputs == width else nn.Sequential(*projection)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.branch(x) + self.shortcut(x))


def resnet20(classes: int) -> nn.Module:
    widths = (16, 16, 16, 32, 32, 32, 64, 64, 64)
    pairs = zip((16, *widths), widths, strict=False)
    blocks = [_Basic(inputs, width, 1 if inputs == width else 2) for inputs, width in pairs]
    return nn.Sequential(Scaled(), _conv_bn(3, 16), *blocks, _head(64, classes))


def vgg(classes: int) -> nn.Module:
    layers: list[nn.Module] = [Scaled()]
    inputs = 3
    for width in (32, 64, 128):
        layers += [_conv_bn(inputs, width), _conv_bn(width, width), nn.MaxPool2d(2)]
        inputs = width
    dense = nn.Linear(128 * 16, 128, bias=False)
    return nn.Sequential(*layers, nn.Flatten(), dense, nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, classes))


class _Inverted(nn.Module):
    """MobileNet-v2: 1×1 to four times the width, depthwise 3×3, 1×1 without an activation."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        wide = 4 * inputs
        self.branch = nn.Sequential(
            _conv_bn(inputs, wide, kernel=1),
            _conv_bn(wide, wide, stride, groups=wide),
            nn.Conv2d(wide, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        branch: Tensor = self.branch(x)
        return x + branch if self.is_residual else branch


def mobilenet(classes: int) -> nn.Module:
    shapes = [(16, 24, 2), (24, 24, 1), (24, 24, 1), (24, 48, 2), (48, 48, 1), (48, 48, 1), (48, 96, 2), (96, 96, 1)]
    blocks = [_Inverted(*shape) for shape in shapes]
    return nn.Sequential(Scaled(), _conv_bn(3, 16), *blocks, _conv_bn(96, 256, kernel=1), _head(256, classes))


class _Dense(nn.Module):
    """DenseNet: batch norm, ReLU, 3×3 convolution; the output is appended to the input."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        conv = nn.Conv2d(inputs, growth, 3, padding=1, bias=False)
        self.branch = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(), conv)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.branch(x)], 1)


def densenet(classes: int, growth: int = 16, depth: int = 4) -> nn.Module:
    layers: list[nn.Module] = [Scaled(), nn.Conv2d(3, 24, 3, padding=1, bias=False)]
    width = 24
    for stage in range(3):
        if stage:
            transition = nn.Conv2d(width, width // 2, 1, bias=False)
            layers += [nn.BatchNorm2d(width), nn.ReLU(), transition, nn.AvgPool2d(2)]
            width //= 2
        for _ in range(depth):
            layers.append(_Dense(width, growth))
            width += growth
    return nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU(), _head(width, classes))


@dataclasses.dataclass(frozen=True)
class Network:
    """What to train: on which data, which network, with which crops, and for how long."""

    kind: str
    data: str
    build: Callable[[], nn.Module]
    epochs: int
    seed: int = 0
    lr: float = 3e-3
    examples: int | None = None
    """Of the training set; None for all."""
    border: tuple[str, int] | None = None
    """Training pictures are random crops and mirrored, after they got a border: its content and width."""


def _cifar(kind: str, build: Callable[[], nn.Module], border: tuple[str, int], seed: int) -> Network:
    return Network(kind, "cifar10", build, epochs=30, seed=seed, lr=1e-2, border=border)


_SMALL = dict[str, Network](
    {
        "digits/cnn": Network("CNN, digits", "digits", lambda: cnn((16, 32), (1, 2), grid=2), 30),
        "digits/wide": Network("CNN, digits", "digits", lambda: cnn((64, 128), (1, 2)), 20, seed=1),
        "digits/pooled": Network(
            "CNN, digits", "digits", lambda: cnn((16, 32, 32), (1, 1, 2), pooled_norm=True), 30, seed=2
        ),
        "digits/mlp": Network("MLP, pictures", "digits", lambda: mlp(64, 10, (64, 64)), 40, seed=3),
        "mnist/cnn": Network("CNN, MNIST", "mnist", lambda: cnn((8, 16, 32), (1, 2, 2), grid=4), 3, examples=20_000),
        "mnist/strided": Network(
            "CNN, MNIST", "mnist", lambda: cnn((16, 32, 48, 64), (2, 1, 2, 2), pooled_norm=True), 3, 1, examples=20_000
        ),
        "mnist/mlp": Network("MLP, pictures", "mnist", lambda: mlp(784, 10, (128, 128)), 4, seed=2),
        "fashion/cnn": Network(
            "CNN, Fashion-MNIST", "fashion", lambda: cnn((12, 24, 48), (1, 2, 2), grid=4), 4, examples=20_000
        ),
        "fashion/residual": Network(
            "pre-activation ResNet, Fashion-MNIST", "fashion", lambda: residual(), 3, 1, examples=20_000
        ),
        "fashion/pooled": Network(
            "CNN, Fashion-MNIST",
            "fashion",
            lambda: cnn((16, 32, 64), (2, 1, 2), pooled_norm=True),
            4,
            2,
            examples=20_000,
        ),
        "leaves/mlp": Network("MLP, table", "leaves", lambda: mlp(50, 32, (64, 64)), 60),
        "leaves/wide": Network("MLP, table", "leaves", lambda: mlp(50, 32, (256,), input_norm=True), 40, seed=1),
        "diamonds/mlp": Network("MLP, table", "diamonds", lambda: mlp(9, 5, (64, 64)), 6, seed=2),
        "segments/deep": Network("MLP, table", "segments", lambda: mlp(18, 7, (48, 48, 48, 48)), 60, seed=3),
        "exercises/conv": Network("1-D CNN, series", "exercises", lambda: conv1d(6, 7, (24, 32, 48)), 20),
        "exercises/deep": Network("1-D CNN, series", "exercises", lambda: conv1d(6, 7, (16, 24, 32, 48)), 20, seed=1),
        "speakers/conv": Network("1-D CNN, series", "speakers", lambda: conv1d(12, 9, (32, 48)), 60, seed=2),
        "instruments/conv": Network("1-D CNN, sounds", "instruments", lambda: conv1d(40, 10, (48, 64, 64)), 20),
        "instruments/picture": Network("2-D CNN, sounds", "instruments", lambda: spectrogram_cnn(10), 20, seed=1),
    }
)

_CIFAR10 = {
    "cifar10/resnet20-black-4": _cifar("ResNet-20, CIFAR-10", lambda: resnet20(10), ("black", 4), 0),
    "cifar10/resnet20-black-2-a": _cifar("ResNet-20, CIFAR-10", lambda: resnet20(10), ("black", 2), 1),
    "cifar10/resnet20-black-2-b": _cifar("ResNet-20, CIFAR-10", lambda: resnet20(10), ("black", 2), 2),
    "cifar10/resnet20-reflect-a": _cifar("ResNet-20, CIFAR-10", lambda: resnet20(10), ("reflected", 4), 3),
    "cifar10/resnet20-reflect-b": _cifar("ResNet-20, CIFAR-10", lambda: resnet20(10), ("reflected", 4), 4),
    "cifar10/vgg": _cifar("VGG, CIFAR-10", lambda: vgg(10), ("black", 4), 5),
    "cifar10/mobilenet-a": _cifar("MobileNet, CIFAR-10", lambda: mobilenet(10), ("reflected", 4), 6),
    "cifar10/mobilenet-b": _cifar("MobileNet, CIFAR-10", lambda: mobilenet(10), ("black", 4), 7),
    "cifar10/densenet": _cifar("DenseNet, CIFAR-10", lambda: densenet(10), ("reflected", 4), 8),
}

NETWORKS: dict[str, Network] = {**_SMALL, **_CIFAR10}


def trained(name: str, folder: Path) -> nn.Module:
    """The network of this name in eval mode, trained on the first call; its weights are kept in `folder/networks`."""
    network = NETWORKS[name]
    path = _weights(name, folder)
    if not path.is_file():
        if network.data == "cifar10" and not torch.cuda.is_available():
            raise DataError(
                f"{path} does not exist: train the networks on CIFAR-10 on a GPU with "
                f"PYTHONPATH=benchmarks python -m regret_cases.train_gpu --data {folder}."
            )
        save(train(network, load(network.data, folder)), name, folder)
    model = network.build()
    model.load_state_dict({key: v.float() if v.is_floating_point() else v for key, v in load_file(path).items()})
    return model.eval()


def save(model: nn.Module, name: str, folder: Path) -> None:
    """Write the weights, parameters in fp16, into `folder/networks`."""
    path = _weights(name, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    parameters = {key for key, _ in model.named_parameters()}
    state = {key: v.half() if key in parameters else v for key, v in model.state_dict().items()}
    save_file({key: value.cpu().contiguous() for key, value in state.items()}, path)


def _weights(name: str, folder: Path) -> Path:
    return folder / "networks" / f"{name.replace('/', '-')}.safetensors"


def train(
    network: Network,
    data: Data,
    *,
    device: str = "cpu",
    epochs: int | None = None,
    report: Callable[[int], None] = lambda epoch: None,
) -> nn.Module:
    """AdamW with a one-cycle learning rate and label smoothing; reproducible on one CPU thread."""
    with torch.random.fork_rng([]):
        torch.manual_seed(network.seed)
        model = network.build().to(device)
    inputs, labels = (t[: network.examples].to(device) for t in (data.train, data.train_labels))
    batch_size = min(256 if network.border else 64, len(inputs) // 8)
    epochs = epochs or network.epochs
    steps = epochs * (len(inputs) // batch_size)
    optimiser = torch.optim.AdamW(model.parameters(), network.lr, weight_decay=0.02, fused=device == "cuda")
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, network.lr, steps, pct_start=0.2)
    draws = torch.Generator(device).manual_seed(network.seed)
    model.train()
    for epoch in range(1, epochs + 1):
        for rows in _batches(len(inputs), batch_size, draws):
            x = inputs[rows]
            if network.border is not None:
                x = random_crops(x, *network.border, draws)
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = F.cross_entropy(model(x), labels[rows], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        report(epoch)
    return model.eval()


def _batches(count: int, size: int, draws: torch.Generator) -> Iterator[Tensor]:
    permutation = torch.randperm(count, generator=draws, device=draws.device)
    return iter(permutation[: count // size * size].view(-1, size))


def random_crops(x: Tensor, border: str, width: int, draws: torch.Generator) -> Tensor:
    """Each picture mirrored half of the time, and moved by up to `width` pixels in both directions."""
    height, side = x.shape[-2:]
    padded = F.pad(x, [width] * 4, mode="reflect") if border == "reflected" else F.pad(x, [width] * 4)

    def positions(size: int, *, mirrored: bool) -> Tensor:
        first = torch.randint(2 * width + 1, (len(x), 1), generator=draws, device=x.device)
        index = torch.arange(size, device=x.device).expand(len(x), size)
        if mirrored:
            flips = torch.randint(2, (len(x), 1), generator=draws, device=x.device) == 1
            index = torch.where(flips, size - 1 - index, index)
        return first + index

    rows, columns = positions(height, mirrored=False), positions(side, mirrored=True)
    examples = torch.arange(len(x), device=x.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[examples, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
