"""Does the doctor name the cause, does its remedy help, and does it stay silent when nothing is wrong?

    python benchmarks/doctor.py                                   # cases and the networks of the zoo, on one core
    python benchmarks/doctor.py --imagenet VAL --weights R50.safetensors   # also ResNet-50 and EfficientNet-Lite0
    python benchmarks/doctor.py --markdown                        # measures nothing: the tables of docs/doctor.md

The cases are those of doctor_cases.py. The networks of the zoo are examined with clean images that come with the
package, ResNet-50 (v1) and EfficientNet-Lite0 with a folder of ImageNet validation images: half of the images are the
reference, the others the data, clean and under each of the 19 corruptions at severity 3. Every result is kept in
results/doctor.json as soon as it is there, and is not measured again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import doctor_cases
from predbn.common import DiagnosticError, write_text
from predbn.data import open_unlabelled, sample
from predbn.diagnostics import Examination, examine
from predbn.diagnostics.batches import Batches
from predbn.diagnostics.measurement import measure
from predbn.diagnostics.training_batches import training_batches
from predbn.models import Classifier, load, zoo
from predbn.norm import BatchForward, named_layers
from predbn.shifts import corrupt, names

RESULTS = Path(__file__).resolve().parent.parent / "results" / "doctor.json"
SWEPT, DONOR = "zoo:resnet20-cifar10/batch/0", "zoo:resnet20-cifar10/batch/1"
CIFAR_IMAGES, SEVERITY = 500, 3
CLEAN = "clean"
BATCHES = (2, 4, 8, 32)


class Kept:
    """Results by name, in the file as soon as they are known."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.table: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def get(self, part: str, name: str, compute: Callable[[], Any]) -> Any:
        """A result of an earlier run, or the computed one."""
        rows = self.table.setdefault(part, {})
        if name not in rows:
            rows[name] = compute()
            write_text(self.path, json.dumps(self.table, indent=1) + "\n")
            print(f"{part}: {name}: {rows[name]}", flush=True)
        return rows[name]


def summary(examination: Examination) -> dict[str, Any]:
    """What the tables need."""
    result: dict[str, Any] = {
        "problems": [finding.code for finding in examination.problems],
        "notes": [finding.code for finding in examination.findings if not finding.is_problem],
    }
    for key in ("fit", "shift"):
        rows = [(getattr(row, key), getattr(row, f"{key}_noise")) for row in examination.layers]
        rows = [(distance, noise) for distance, noise in rows if distance is not None]
        if rows:
            result[key] = round(max(distance for distance, _ in rows), 3)
            result[f"{key}_times_noise"] = round(max(distance / noise for distance, noise in rows), 2)
    for name, numbers in examination.predictions.items():
        result[f"{name}_predictions"] = {key: round(value, 3) for key, value in numbers.items()}
    return result


def measure_cases(kept: Kept) -> None:
    """Each complaint in miniature: what is found, and the accuracy before and after the remedy."""
    trained = doctor_cases.train(doctor_cases.network())
    for name in doctor_cases.NAMES:

        def row(name: str = name) -> dict[str, Any]:
            case = doctor_cases.make(name, trained)
            examination = examine(case.model, case.reference, case.data)
            before = doctor_cases.accuracy(case.model, case.test)
            case.remedy(case.model)
            after = doctor_cases.accuracy(case.model, case.test)
            return {"before": before, "after": after, "remedy": case.remedy_name, **summary(examination)}

        kept.get("cases", name, row)


def measure_batches(kept: Kept) -> None:
    """Networks trained from the start in batches of several sizes: what the stored variances say about the size."""
    for size in BATCHES:
        for seed in range(3):
            kept.get("batches", f"{size}, {seed}", lambda size=size, seed=seed: batches_row(size, seed))


def batches_row(size: int, seed: int) -> dict[str, float]:
    """The slope and correlation of training_batches.py, and the accuracy before and after recomputing."""
    model = doctor_cases.train(doctor_cases.network(seed), 400, batch=size, rate=0.01)
    measured = measure(BatchForward(model), Batches(doctor_cases.clean(), 100, None, 0), "reference")
    whole = {name: moments.statistics.var for name, moments in measured.recomputed.items()}
    batches = training_batches(whole, measured.variances_in_pairs, dict(named_layers(model)))
    test = doctor_cases.gratings(1000, seed=3)
    before = doctor_cases.accuracy(model, test)
    doctor_cases.recompute(model)
    numbers = {"before": before, "after": doctor_cases.accuracy(model, test)}
    return numbers | ({} if batches is None else {"slope": batches.slope, "correlation": batches.correlation})


def measure_zoo(kept: Kept) -> None:
    """All networks of the zoo with clean data, and one of them, healthy and stale, under each corruption."""
    reference, data = (sample(part).images[:CIFAR_IMAGES] for part in ("validation", "test"))
    for name in zoo.names():
        kept.get("clean", f"zoo:{name}", lambda name=name: summary(examine(load(f"zoo:{name}"), reference, data)))
    sweep(kept, SWEPT, load(SWEPT), reference, lambda corruption: corrupted(data, corruption))
    sweep(kept, f"{SWEPT}, stale", stale(), reference, lambda corruption: corrupted(data, corruption))


def stale() -> Classifier:
    """A network of the zoo with the statistics of another one."""
    model, donor = load(SWEPT), dict(named_layers(load(DONOR)))
    for name, layer in named_layers(model):
        for buffer in ("running_mean", "running_var"):
            getattr(layer, buffer).copy_(getattr(donor[name], buffer))
    return model


def measure_imagenet(
    kept: Kept, reference: str, folder: str, name: str, images: int, corruptions: Sequence[str], device: str = "cpu"
) -> None:
    """A network on ImageNet under some corruptions; half of the images are the reference."""
    model = load(reference, device=torch.device(device))
    source = open_unlabelled(folder, "train", transform=model.info.preprocessing.crop)
    positions = torch.randperm(len(source), generator=torch.Generator().manual_seed(0))[: 2 * images]
    pixels = torch.cat([batch.images for batch in source.batches(100, order=positions)])
    clean, data = pixels[:images], pixels[images:]
    sweep(kept, name, model, clean, lambda corruption: corrupted(data, corruption), corruptions)
    kept.get("clean", name, lambda: kept.table["corruptions"][f"{name}, {CLEAN}"])


def sweep(
    kept: Kept,
    name: str,
    model: nn.Module,
    reference: Tensor,
    shifted: Callable[[str], Tensor],
    corruptions: Sequence[str] = (CLEAN, *names("all")),
) -> None:
    """Examine a network with clean data and with each corruption."""
    for corruption in corruptions:
        kept.get(
            "corruptions",
            f"{name}, {corruption}",
            lambda corruption=corruption: summary(examine(model, reference, shifted(corruption))),
        )


def corrupted(images: Tensor, corruption: str) -> Tensor:
    if corruption == CLEAN:
        return images
    parts = enumerate(images.split(50))
    return torch.cat(
        [
            corrupt(part, corruption, SEVERITY, seed=0, index=torch.arange(50 * k, 50 * k + len(part)))
            for k, part in parts
        ]
    )


def markdown() -> dict[str, str]:
    """The tables of docs/doctor.md, by name."""
    table = json.loads(RESULTS.read_text())
    return {
        "cases": _cases_table(table["cases"]),
        "batches": _batches_table(table["batches"]),
        "clean": _clean_table(table["clean"]),
        "corruptions": _corruptions_table(table["corruptions"]),
    }


def _cases_table(rows: dict[str, Any]) -> str:
    lines = ["| what went wrong | the doctor says | remedy | accuracy before, % | after, % |", "|---|---|---|--:|--:|"]
    for name, row in rows.items():
        says = ", ".join(row["problems"]) or "nothing needs to be done"
        lines.append(f"| {name} | {says} | {row['remedy'] or '–'} | {row['before']:.1f} | {row['after']:.1f} |")
    return "\n".join(lines)


def _batches_table(rows: dict[str, Any]) -> str:
    lines = ["| batches of | slope | correlation | accuracy before, % | recomputed, % |", "|--:|--:|--:|--:|--:|"]
    for size in BATCHES:
        members = [row for name, row in rows.items() if name.startswith(f"{size}, ")]
        cells = [", ".join(f"{row[key]:.2f}" for row in members) for key in ("slope", "correlation")]
        cells += [", ".join(f"{row[key]:.1f}" for row in members) for key in ("before", "after")]
        lines.append(f"| {size} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _clean_table(rows: dict[str, Any]) -> str:
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, row in rows.items():
        groups.setdefault(name.rpartition("/")[0] if name.startswith("zoo:") else name, []).append(row)
    lines = [
        "| network | networks | problems | shifts seen | distance | times noise | gain, nats | shift, times noise |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, members in groups.items():
        problems = sum(bool(row["problems"]) for row in members)
        shifts = sum("shifted" in row["notes"] + row["problems"] for row in members)
        cells = ["–"] * 4
        if "fit" in members[0]:
            gains = [row["reference_predictions"]["gain"] for row in members]
            cells = [
                f"{max(row['fit'] for row in members):.2f}",
                f"{max(row['fit_times_noise'] for row in members):.1f}",
                f"{max(gains):+.3f}",
                f"{max(row['shift_times_noise'] for row in members):.1f}",
            ]
        lines.append(f"| {name} | {len(members)} | {problems} | {shifts} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _corruptions_table(rows: dict[str, Any]) -> str:
    networks = list(dict.fromkeys(name.rpartition(", ")[0] for name in rows))
    lines = ["| | " + " | ".join(networks) + " |", "|---|" + "---|" * len(networks)]
    for corruption in (CLEAN, *names("all")):
        cells = []
        for network in networks:
            row = rows.get(f"{network}, {corruption}")
            cells.append("not measured" if row is None else f"{_verdict(row)} ({row['shift_times_noise']:.1f})")
        lines.append(f"| {corruption} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _verdict(row: dict[str, Any]) -> str:
    """The codes that separate a shift from stale statistics; problems are bold."""
    codes = [f"**{code}**" for code in row["problems"]] + [code for code in row["notes"] if code == "shifted"]
    return ", ".join(codes) or "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--imagenet", help="a folder of ImageNet validation images")
    parser.add_argument("--weights", help="ResNet-50 v1 in safetensors")
    parser.add_argument("--images", type=int, default=100, help="images of ImageNet as reference, and as data")
    parser.add_argument("--device", default="cpu", help="for the networks on ImageNet")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where results are kept")
    parser.add_argument("--markdown", action="store_true", help="print the tables from results/")
    arguments = parser.parse_args()
    if arguments.markdown:
        for name, table in markdown().items():
            print(f"<!-- {name} -->\n{table}\n<!-- /{name} -->\n")
        return
    torch.set_num_threads(1)
    kept = Kept(arguments.results)
    kept.table["card"] = {"command": "python benchmarks/doctor.py", "torch": torch.__version__}
    if bool(arguments.imagenet) != bool(arguments.weights):
        raise DiagnosticError("--imagenet and --weights go together: give both or none.")
    if arguments.imagenet:
        networks = {
            "ResNet-50": f"file:{arguments.weights}#resnet50-v1",
            "EfficientNet-Lite0": "lite:efficientnet_lite0",
        }
        for corruptions in ((CLEAN,), names("all")):
            for name, model in networks.items():
                options = arguments.images, corruptions, arguments.device
                measure_imagenet(kept, model, arguments.imagenet, name, *options)
    else:
        measure_cases(kept)
        measure_batches(kept)
        measure_zoo(kept)
    print(f"Wrote {arguments.results}")


if __name__ == "__main__":
    main()
