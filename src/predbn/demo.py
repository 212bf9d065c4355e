"""The method on a small network trained in seconds on made data: no download, no GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .norm import adapted

CLASSES, SIZE, BATCH = 10, 16, 250
SEVERITIES = (0, 1, 2, 3, 4, 5)

Shift = Callable[[Tensor, int, torch.Generator], Tensor]


def _noise(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    return x + 0.08 * severity * torch.randn(x.shape, generator=generator)


def _contrast(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    mean = x.mean((2, 3), keepdim=True)
    return mean + (x - mean) * (1.0, 0.6, 0.45, 0.3, 0.2, 0.12)[severity]


def _brightness(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    return x + 0.15 * severity


def _blur(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    for _ in range(severity):
        x = F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), 3, stride=1)
    return x


SHIFTS: dict[str, Shift] = {"noise": _noise, "contrast": _contrast, "brightness": _brightness, "blur": _blur}


class Score(NamedTuple):
    """Accuracy and expected calibration error (15 equal-width bins of the top probability)."""

    accuracy: float
    calibration_error: float


def make_data(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images of gratings: the class is the direction of the stripes; their colour, phase, width and some
    noise tell nothing."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % CLASSES
    angle = labels * (torch.pi / CLASSES) + 0.08 * torch.randn(n, generator=g)
    frequency = 2 * torch.pi * (0.12 + 0.1 * torch.rand(n, generator=g))
    phase = 2 * torch.pi * torch.rand(n, generator=g)
    y, x = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    along = torch.cos(angle)[:, None, None] * x + torch.sin(angle)[:, None, None] * y
    stripes = torch.sin(frequency[:, None, None] * along + phase[:, None, None])
    colour = 0.1 + 0.4 * torch.rand(n, 3, 1, 1, generator=g)
    images = 0.5 + colour * stripes[:, None] + 0.12 * torch.randn(n, 3, SIZE, SIZE, generator=g)
    return images, labels


def make_model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)

    def block(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        return [convolution, nn.BatchNorm2d(outputs, eps=1e-3), nn.ReLU()]

    return nn.Sequential(
        *block(3, 16, 1), *block(16, 32, 2), *block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES),
    )  # fmt: skip


def train(model: nn.Module, seed: int = 0, epochs: int = 6) -> Iterator[tuple[int, int]]:
    """Train, telling after every step how far it is: (step, steps)."""
    images, labels = make_data(6000, seed=1)
    model.train()
    generator = torch.Generator().manual_seed(seed)
    steps, step = epochs * (len(images) // 100), 0
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(epochs):
        for chosen in torch.randperm(len(images), generator=generator).split(100):
            optimiser.zero_grad()
            F.cross_entropy(model(images[chosen]), labels[chosen]).backward()
            optimiser.step()
            schedule.step()
            step += 1
            yield step, steps
    model.eval()


def score(model: nn.Module, images: Tensor, labels: Tensor) -> Score:
    """Predict in batches of `BATCH`, whose statistics `batch` will use."""
    with torch.inference_mode():
        probabilities = torch.cat([model(x).softmax(1) for x in images.split(BATCH)])
    confidence, predicted = probabilities.max(1)
    correct = (predicted == labels).float()
    bins = (confidence * 15).ceil().long().clamp(1, 15) - 1
    gaps = [(correct[bins == b].sum() - confidence[bins == b].sum()).abs() for b in range(15)]
    return Score(correct.mean().item(), (torch.stack(gaps).sum() / len(labels)).item())


def compare(model: nn.Module) -> Iterator[tuple[str, int, Score, Score]]:
    """Every shift and severity under source statistics and under the batch's own:
    (shift, severity, train, batch)."""
    images, labels = make_data(2000, seed=2)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(3))
    images, labels = images[order], labels[order]
    for name, shift in SHIFTS.items():
        for severity in SEVERITIES:
            shifted = shift(images, severity, torch.Generator().manual_seed(severity))
            source = score(model, shifted, labels)
            with adapted(model, "batch"):
                yield name, severity, source, score(model, shifted, labels)


def run() -> None:
    """Train, compare, and print what was found."""
    from rich import box
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Table

    console = Console()
    begin = time.perf_counter()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("training a small network on made data", total=None)
        model = make_model()
        for step, steps in train(model):
            progress.update(task, completed=step, total=steps)
        task = progress.add_task("predicting shifted data", total=len(SHIFTS) * len(SEVERITIES))
        rows = []
        for row in compare(model):
            rows.append(row)
            progress.advance(task)

    table = Table(
        title="Accuracy and calibration error by severity of the shift, on made data",
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for heading in ("shift", "strategy", *(str(severity) for severity in SEVERITIES)):
        table.add_column(heading, justify="right" if heading.isdigit() else "left", no_wrap=True)
    for name in SHIFTS:
        own = [row for row in rows if row[0] == name]
        table.add_row(name, "train", *(_cell(source) for *_, source, _ in own))
        table.add_row("", "batch", *(f"[bold]{_cell(batch)}[/bold]" for *_, batch in own), end_section=True)
    console.print(table)
    shifted = [(source, batch) for _, severity, source, batch in rows if severity > 0]
    mean = [sum(pair[i].accuracy for pair in shifted) / len(shifted) for i in (0, 1)]
    won = sum(batch.accuracy > source.accuracy for source, batch in shifted)
    console.print(
        f"Mean accuracy under shift: {mean[0]:.1%} with the statistics stored in training (train), "
        f"[bold]{mean[1]:.1%}[/bold] with those of each batch of {BATCH} (batch); "
        f"better in {won} of {len(shifted)} cases. It took {time.perf_counter() - begin:.0f} s."
    )
    console.print("On your own model: [bold]predbn.adapt(model)[/bold], and predbn.restore(model) to undo it.")


def _cell(score: Score) -> str:
    return f"{score.accuracy:.0%} {score.calibration_error:.2f}".replace(" 0.", " .")
