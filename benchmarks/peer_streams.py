"""This package's strategies and the rules of others on the same streams of CIFAR-10: accuracy and calibration.

    python benchmarks/peer_streams.py --images 1000 --shifts gaussian_noise glass_blur fog contrast   # CPU: 15 minutes
    python benchmarks/peer_streams.py --device cuda --images 2000 --networks 0 1 2     # GPU: all 19 shifts
    python benchmarks/peer_streams.py --markdown       # measures nothing: the tables from results/peers.json

The rules are in benchmarks/peers/, one file each. The networks are the zoo's ResNet-20, the streams

    i.i.d.            a split in random order
    Dirichlet         classes in bursts, concentration 0.1
    sorted            by label
    shifts in turn    batches of one shift after another, each in random order

The first three are run for the clean images and for each shift, and what a rule remembers is forgotten before each.
A run that was interrupted continues where it stopped. benchmarks/inference.py measures the time of our strategies.

Streams of a thousand images are short for rules that learn slowly: TENT takes ten steps there and is still close to
`batch`, and UnMix-TNS and balanced BN have not yet moved all the way.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from measurements import RESULTS, ResultsFile, markdown_table, read_results
from peers import Predictor, calibrated_network, make_predictors
from predbn.common import parse_device
from predbn.data import CLEAN, Corrupted, ImageBatch, Images, cifar10
from predbn.metrics import Scores
from predbn.shifts import names, orders

RESULT = RESULTS / "peers.json"
CONCENTRATION = 0.1
ORDERS = {
    "i.i.d.": lambda labels: orders.shuffled(len(labels), seed=0),
    "Dirichlet": lambda labels: orders.dirichlet(labels, CONCENTRATION, seed=0),
    "sorted": lambda labels: orders.by_class(labels, seed=0),
}
IN_TURN = "shifts in turn"


def streams(
    images: Images, shifts: list[tuple[str, int]], batch: int, batches_in_turn: int, device: torch.device
) -> Iterator[tuple[str, str, Iterator[ImageBatch]]]:
    """The name of each stream, the split in it, and its batches. They are made when they are asked for."""
    data, labels = Corrupted(images), images.labels.cpu().numpy()
    for name, order in ORDERS.items():
        for shift, severity in [(CLEAN, 0), *shifts]:
            split = f"{shift} {severity}" if severity else shift
            yield name, split, data.batches(shift, severity, batch, order=order(labels), device=device)

    def in_turn() -> Iterator[ImageBatch]:
        for number, (shift, severity) in enumerate(shifts):
            order = orders.shuffled(len(images), seed=number)[: batches_in_turn * batch]
            yield from data.batches(shift, severity, batch, order=order, device=device)

    yield IN_TURN, "all", in_turn()


def measure(
    predictors: dict[str, Predictor], batches: Iterable[ImageBatch], classes: int
) -> dict[str, dict[str, float]]:
    """The scores of all predictors on one stream."""
    scores = {name: Scores(classes) for name in predictors}
    for predictor in predictors.values():
        predictor.reset()
    for batch in batches:
        for name, predictor in predictors.items():
            scores[name].update(predictor(batch.images).softmax(1), batch.labels)
    computed = {name: score.compute() for name, score in scores.items()}
    return {name: {metric: row[metric] for metric in ("accuracy", "brier", "ece")} for name, row in computed.items()}


def markdown(path: Path = RESULT) -> str:
    """How much was measured; accuracy as one table; calibration as another."""
    content = read_results(path)
    setup, units = content["card"]["setup"], content["units"].values()
    networks = len({unit["network"] for unit in units})
    size = (
        f"{setup['data']}, in batches of {setup['batch']}; networks: {networks}; shifts: {', '.join(setup['shifts'])}"
    )
    by_column: dict[str, list[dict[str, Any]]] = {}
    for unit in units:
        kind = "clean" if unit["split"] == CLEAN else "shifted"
        head = unit["stream"] if unit["stream"] == IN_TURN else f"{unit['stream']}, {kind}"
        by_column.setdefault(head, []).append(unit["rules"])
    rules = list(dict.fromkeys(name for unit in units for name in unit["rules"]))

    def mean(rows: list[dict[str, Any]], name: str, metric: str) -> float:
        return statistics.mean(row[name][metric] for row in rows)

    accuracies, calibration = [], []
    for name in rules:
        cells = [f"{100 * mean(rows, name, 'accuracy'):.1f}" for rows in by_column.values()]
        accuracies.append([name, *cells])
        cells = [
            f"{mean(rows, name, 'brier'):.3f} / {100 * mean(rows, name, 'ece'):.1f}" for rows in by_column.values()
        ]
        calibration.append([name, *cells])
    first = markdown_table(["accuracy, %", *by_column], accuracies)
    return "\n\n".join([size, first, markdown_table(["Brier score / ECE, %", *by_column], calibration)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 or auto")
    parser.add_argument("--networks", type=int, nargs="+", default=[0], help="seeds of the zoo's ResNet-20")
    parser.add_argument("--images", type=int, help="the first so many test images; by default all 10,000")
    parser.add_argument("--shifts", nargs="+", default=["all"], help="corruptions, or all 19")
    parser.add_argument("--severities", type=int, nargs="+", default=[5])
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--batches-in-turn", type=int, default=10, help="of each shift, where shifts come in turn")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--markdown", action="store_true", help="print the tables of --out")
    options = parser.parse_args()
    if options.markdown:
        print(markdown(options.out))
        return
    torch.set_num_threads(options.threads)
    device = parse_device(options.device)
    kinds = names("all") if options.shifts == ["all"] else options.shifts
    shifts = [(kind, severity) for kind in kinds for severity in options.severities]
    test = cifar10("test")
    test = test if options.images is None else test.take(options.images)
    setup = {
        "data": f"{test.name}, first {len(test)} images",
        "shifts": [f"{kind} {severity}" for kind, severity in shifts],
        "batch": options.batch,
        "batches_in_turn": options.batches_in_turn,
        "calibration": "the 5,000 clean validation images, without labels",
        "reset": "before every stream",
    }
    results, validation = ResultsFile(options.out, setup, device), cifar10("validation")
    for seed in options.networks:
        reference = f"zoo:resnet20-cifar10/batch/{seed}"
        with torch.no_grad():
            network = calibrated_network(reference, validation, device)
            predictors = make_predictors(network, seed=seed)
            for predictor in predictors.values():  # what happens only in a first call is not measured
                predictor(test.images[: options.batch].to(device))
            for stream, split, batches in streams(test, shifts, options.batch, options.batches_in_turn, device):
                unit = f"{reference}, {stream}, {split}"
                if set(predictors) <= set(results.units.get(unit, {"rules": ()})["rules"]):
                    continue
                rules = measure(predictors, batches, len(test.classes))
                results.add(unit, {"network": reference, "stream": stream, "split": split, "rules": rules})
                accuracies = ", ".join(f"{name} {100 * row['accuracy']:.1f}" for name, row in rules.items())
                print(f"{unit}: {accuracies}", flush=True)
    print(f"\n{markdown(options.out)}\n\nWrote {options.out}")


if __name__ == "__main__":
    main()
