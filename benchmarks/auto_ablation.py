"""What each term of `auto` is worth: the same networks and images with one term changed at a time.

    python benchmarks/auto_ablation.py                          # a ResNet-20 of the zoo, five minutes on one core
    python benchmarks/auto_ablation.py --network lite0 --root DIR                  # ImageNet, in DIR
    python benchmarks/auto_ablation.py --network resnet50 --root DIR --weights FILE --device cuda
    python benchmarks/auto_ablation.py --markdown  # measures nothing: the table of docs/auto-evidence.md from results/

All forms use one pass and no bounded influence. The images are under corruptions at severity 3 that were not used to
develop `auto`: 300 images of the sample that comes with the package and all 15 of them for ResNet-20, 500 images and
five of them for the networks on ImageNet. `auto` is calibrated on other images, on ImageNet on 2,000. A run that was
interrupted continues where it stopped; results are in results/auto-ablation.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import predbn
from measurements import RESULTS, ResultsFile, markdown_table, read_results
from predbn.common import parse_device
from predbn.data import Corrupted, Images, imagenet, sample
from predbn.evaluation import framing_of
from predbn.models import Classifier, load
from predbn.norm import Auto, Calibration, Observation, Statistics
from predbn.shifts import names, orders

RESULT = RESULTS / "auto-ablation.json"
SIZES = (1, 5, 20, 100)
SEVERITY, FEWER_CORRUPTIONS = 3, ("gaussian_noise", "motion_blur", "fog", "contrast", "jpeg_compression")
NETWORKS = {"resnet20": "ResNet-20", "resnet50": "ResNet-50", "lite0": "EfficientNet-Lite0"}
FORMS = {
    "all terms": {},
    "no common scale (step 4)": {"scale": False},
    "the offset dropped, f = 0": {"offset": "dropped"},
    "the whole offset kept, f = 1": {"offset": "kept"},
    "no V in N": {"network": False},
    "James–Stein: k = (1 − s)₊·n/(n + V²/5)": {"james_stein": True},
    "James–Stein, no common scale, f = 1": {"james_stein": True, "scale": False, "offset": "kept"},
    "the batch and the whole offset, k = f = 1": {"batch_only": True, "scale": False, "offset": "kept"},
}


@dataclass(frozen=True)
class AblatedAuto(Auto):
    """The steps of `auto` in plain operations, with switches."""

    scale: bool = True
    offset: str = "fading"
    network: bool = True
    james_stein: bool = False
    batch_only: bool = False

    def __init__(self, **switches: Any) -> None:
        super().__init__(passes=1)
        for name, value in switches.items():
            object.__setattr__(self, name, value)

    def rule(self, observation: Observation) -> None:
        """No kernels: they would compute `auto` as it is."""

    def statistics(self, observation: Observation) -> Statistics:
        clean, source, eps = observation.calibration, observation.source, observation.eps
        assert clean is not None
        assert source is not None
        moments = observation.moments(allow_single_value=True)
        n, clean = moments.size, clean.to(source.mean)
        chance = 1 / n + 1 / clean.size
        network = clean.network**2 / 5 / (n + 1) if self.network else 0.0
        delta, z2, r = clean.compare(moments.statistics, eps)
        a2 = self._common_scale(r, clean, chance, network) if self.scale else torch.ones_like(r[..., :1])
        d = (clean.weight * (z2 / a2 + (r / a2 - 1) ** 2 / 2)).sum(-1, keepdim=True).clamp(1e-12, 1e30)
        s = chance / d
        k = 1 / (1 + s * (1 + s) ** 2 + network)
        if self.james_stein:
            k = (1 - s).clamp(min=0) / (1 + clean.network**2 / 5 / n)
        if self.batch_only:
            k = torch.ones_like(s)
        e = (d - chance).clamp(1e-12, 1e30)
        f = {"fading": 1 - k * e / (e + clean.offset), "kept": torch.ones_like(k), "dropped": torch.zeros_like(k)}
        kept = f[self.offset]
        g = a2 * (1 - k) + k * (r - k * z2)
        mean = clean.mean + (1 - (1 - k) * a2.sqrt()) * delta + kept * g.sqrt() * (source.mean - clean.mean)
        var = g * (clean.var + kept * (source.var - clean.var) + eps) - eps
        return Statistics(mean, var.clamp(min=0))

    @staticmethod
    def _common_scale(r: Tensor, clean: Calibration, chance: float, network: float) -> Tensor:
        h, log_r = clean.weight, r.log()
        total = h.sum()
        ell = (h * log_r).sum(-1, keepdim=True) / total
        square = (ell * ell).clamp(1e-12, 1e30)
        omega = ((h * log_r**2).sum(-1, keepdim=True) / total / square - 1).clamp(1e-12, 1e30)
        s = chance / (total * square / 2).clamp(1e-12, 1e30)
        scale: Tensor = (ell / (1 + s * (1 + s) ** 2 + network * omega)).clamp(max=0).exp()
        return scale


def networks_and_images(options: argparse.Namespace) -> Iterator[tuple[str, Classifier, Images, Images]]:
    """For each network: its name, the network, images to calibrate on and images to predict."""
    if options.network == "resnet20":
        test = sample("test")
        chosen = test.take(orders.shuffled(len(test), seed=0)[:300])
        for seed in range(1):
            yield f"ResNet-20, {seed}", load(f"zoo:resnet20-cifar10/batch/{seed}"), sample("validation"), chosen
        return
    reference = f"file:{options.weights}#resnet50-v1" if options.network == "resnet50" else "lite:efficientnet_lite0"
    model = load(reference)
    images = imagenet(options.root, **framing_of(model.info.preprocessing))
    order = orders.shuffled(len(images), seed=0)
    yield NETWORKS[options.network], model, images.take(order[500:2500]), images.take(order[:500])


@torch.inference_mode()
def accuracies(model: Classifier, images: Images, split: tuple[str, int], device: torch.device) -> dict[str, float]:
    """Accuracy in % by form and batch size."""
    batches = list(Corrupted(images).batches(*split, 100, device=device))
    found = {}
    for form, switches in FORMS.items():
        for size in SIZES:
            predbn.adapt(model, AblatedAuto(**switches), group=size, robust=False)
            right = sum(float((model(batch.images).argmax(1) == batch.labels).float().sum()) for batch in batches)
            found[f"{form}, {size}"] = 100 * right / len(images)
    return found


def measure(options: argparse.Namespace) -> None:
    """Measure what the results file does not have yet."""
    device = parse_device(options.device)
    file = ResultsFile(options.out, {"sizes": SIZES, "forms": list(FORMS)}, device)
    corruptions = names("standard") if options.network == "resnet20" else FEWER_CORRUPTIONS
    for name, model, clean, images in networks_and_images(options):
        model = model.to(device).eval()
        calibrated = False
        for corruption in corruptions:
            key = f"{name}, {corruption}"
            if key not in file.units:
                if not calibrated:
                    predbn.calibrate(model, (batch.images for batch in clean.batches(250, device=device)))
                    calibrated = True
                file.add(key, accuracies(model, images, (corruption, SEVERITY), device))
                print(key, flush=True)


def markdown(path: Path = RESULT) -> str:
    """Mean accuracy under shift by network, form and batch size."""
    units = read_results(path)["units"]
    measured = [label for label in NETWORKS.values() if any(name.startswith(label) for name in units)]
    heads = [f"{label}: {size}" if size == SIZES[0] else str(size) for label in measured for size in SIZES]
    rows = []
    for form in FORMS:
        cells = []
        for label in measured:
            for size in SIZES:
                values = [unit[f"{form}, {size}"] for name, unit in units.items() if name.startswith(label)]
                cells.append(f"{sum(values) / len(values):.1f}")
        rows.append([form, *cells])
    return markdown_table(["", *heads], rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--network", choices=tuple(NETWORKS), default="resnet20")
    parser.add_argument("--root", type=Path, help="ImageNet's class folders")
    parser.add_argument("--weights", type=Path, help="weights of ResNet-50 v1")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--markdown", action="store_true", help="print the table, measure nothing")
    arguments = parser.parse_args()
    if not arguments.markdown:
        measure(arguments)
    print(markdown(arguments.out))
