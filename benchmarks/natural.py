"""The paper's open question: prediction-time BN on shifts that nobody made on purpose.

    python benchmarks/natural.py --natural NATURAL --imagenet VAL --weights RESNET50  # an hour on one core

The sets are those of `regret_cases/natural.py`, which says what the three folders contain: photos and paintings of
PACS, edge drawings and cue conflicts, by forced choice. Two controls tell a shift from the choice of the pictures:
validation pictures of ImageNet, which have not shifted and are of all classes, and batches of 20 pictures of a set with
80 of these, so that the statistics are those of many classes. Writes results/natural.json with the outcome of every
picture, from which `predbn paper document` makes the table of docs/replication.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import predbn
from measurements import RESULTS, ResultsFile
from regret_cases import natural
from regret_cases.subjects import CLEAN, Labelled

RESULT = RESULTS / "natural.json"
NETWORKS = {"natural/resnet50": "ResNet-50", "natural/lite0": "EfficientNet-Lite0"}
STRATEGIES = ("train", "batch", "prior(N=64)")
DILUTED = "batch, diluted"
BATCH, FEW = 100, 20
"""The paper's batch size for ImageNet, and how many pictures of a set are in a batch of the control."""
NOT_SHIFTED = "PACS photo"
"""The set that only has few classes, for the control."""
KINDS = {"PACS photo": "pacs", "PACS art": "pacs", "edges": "shapes", "cue conflict": "shapes"}


@torch.inference_mode()
def probabilities(model: nn.Module, inputs: Tensor, order: Tensor, others: Tensor | None = None) -> Tensor:
    """Class probabilities in the order of `inputs`, predicted in batches; with `others`, FEW inputs in each of them."""
    size = BATCH if others is None else FEW
    result = torch.empty(len(inputs), 1000)
    for number, batch in enumerate(order.split(size)):
        pictures = inputs[batch]
        if others is not None:
            start = number * (BATCH - FEW) % len(others)
            pictures = torch.cat([pictures, others.roll(-start, 0)[: BATCH - FEW]])
        result[batch] = model(pictures)[: len(batch)].softmax(1)
    return result


def outcome(chances: Tensor, labels: Tensor, groups: list[list[int]] | None) -> dict[str, Any]:
    """By picture: right or not, Brier score and confidence, among the classes of the set."""
    if groups is not None:
        sums = torch.stack([chances[:, group].sum(1) for group in groups], 1)
        chances = sums / sums.sum(1, keepdim=True)
    right = chances.argmax(1) == labels
    brier = (chances - nn.functional.one_hot(labels, chances.shape[1])).square().sum(1)
    return {
        "right": "".join(str(int(value)) for value in right),
        "brier": [round(value, 4) for value in brier.tolist()],
        "confidence": [round(value, 4) for value in chances.amax(1).tolist()],
    }


def measure(options: argparse.Namespace) -> None:
    setup = {"strategies": STRATEGIES, "batch": BATCH, "few": FEW, "pictures": natural.PICTURES}
    results = ResultsFile(options.out, setup, torch.device("cpu"))
    kinds = json.loads((options.natural / "imagenet_indices.json").read_text())
    subjects = {
        label: [natural.subject(name, half, options) for half in ("development", "test")]
        for name, label in NETWORKS.items()
    }
    for control in (False, True):
        for label, halves in subjects.items():
            sets = {title: load for half in halves for title, load in half.sets.items()}
            for title, load in sets.items():
                strategies = STRATEGIES if not control else (DILUTED,) if title == NOT_SHIFTED else ()
                units = {f"{label}, {title}, {strategy}": strategy for strategy in strategies}
                missing = {unit: strategy for unit, strategy in units.items() if unit not in results.units}
                if not missing:
                    continue
                data: Labelled = load()
                groups = None if title == CLEAN else list(kinds[KINDS[title]].values())
                order = torch.randperm(len(data.inputs), generator=torch.Generator().manual_seed(0))
                for unit, strategy in missing.items():
                    predbn.adapt(halves[0].model, strategy.partition(",")[0])
                    others = halves[0].clean if control else None
                    chances = probabilities(halves[0].model, data.inputs, order, others)
                    predbn.restore(halves[0].model)
                    results.add(unit, outcome(chances, data.labels, groups))
                    print(unit, results.units[unit]["right"].count("1") / len(order), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    natural.add_arguments(parser)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    for option in ("natural", "imagenet", "weights"):
        if getattr(options, option) is None:
            parser.error(f"--{option} is needed, see regret_cases/natural.py.")
    measure(options)


if __name__ == "__main__":
    main()
