"""How far malicious rows get against this package's strategies and the rules of others, which they know.

    python benchmarks/peer_attacks.py --device cuda      # GPU: as published, 18 batches over six corruptions
    python benchmarks/peer_attacks.py --steps 20 --rows 100 --batches 1 --past 2 --shifts fog contrast \\
        --out /tmp/attacks.json                          # CPU, ten minutes: a trial, see below
    python benchmarks/peer_attacks.py --markdown     # measures nothing: the table from results/peer-attacks.json

src/predbn/shifts/attack.py says what the two attacks do. The targeted attack is run on corrupted images at severity 5,
the attack on everyone on clean images. A rule that remembers a stream is attacked after `--past` batches of it.
Left out are rules that are as hard to attack as `train` because the rows of a batch do not meet: IABN, and UnMix-TNS
and balanced BN within one batch; and rules that change more than statistics. A run that was interrupted continues
where it stopped.

Fewer and longer steps make a much weaker attack. The trial shows that everything runs and in which direction the
figures go; it says nothing about how safe a rule is.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from measurements import RESULTS, ResultsFile, markdown_table, read_results
from peers import STRATEGIES, AdaptedNetwork, PixelNetwork, calibrated_network
from peers.attack import outcomes
from predbn.common import parse_device
from predbn.data import CLEAN, Corrupted, ImageBatch, Images, cifar10
from predbn.norm import find_strategy
from predbn.shifts import ATTACKS, Attack, orders

RESULT = RESULTS / "peer-attacks.json"
NOT_ROBUST = "auto, not robust"
RULES = (
    "train", "batch", "prior(N=16)", "auto", NOT_ROBUST, "auto(passes=4)", "auto_stream", "α-BN", "MedBN", "median/MAD",
)  # fmt: skip
SHIFTS = ("gaussian_noise", "glass_blur", "fog", "contrast", "pixelate", "jpeg_compression")
SEVERITY = 5


def attacked_batches(
    images: Images, attack: Attack, shifts: list[str], count: int, past: int, device: torch.device
) -> Iterator[tuple[str, list[ImageBatch]]]:
    """For each attack: the name of its batch, and the batches of the stream up to and including the attacked one."""
    splits = [(CLEAN, 0)] if attack.kind == "everyone" else [(shift, SEVERITY) for shift in shifts]
    length = (past + 1) * attack.rows
    for shift, severity in splits:
        for number in range(count):
            order = orders.shuffled(len(images), seed=number)[:length]
            batches = Corrupted(images).batches(shift, severity, attack.rows, order=order, device=device)
            yield f"{shift}, batch {number}", list(batches)


def measure(
    network: PixelNetwork, rule: str, attack: Attack, streams: list[list[ImageBatch]]
) -> Iterator[dict[str, float]]:
    """The outcome of an attack on the last batch of each stream."""
    strategy = find_strategy("auto" if rule == NOT_ROBUST else STRATEGIES.get(rule, rule))
    options = {"robust": False} if rule == NOT_ROBUST else {}
    # A strategy without state sees the batches of all streams at once, which a GPU does much faster.
    if strategy.works_on_segments and not strategy.keeps_state:
        defended = AdaptedNetwork(network, strategy, group=attack.rows, **options)
        images, labels = (torch.cat(t) for t in zip(*((s[-1].images, s[-1].labels) for s in streams), strict=True))
        yield from outcomes(attack, defended, images, labels)
        return
    for stream in streams:
        defended = AdaptedNetwork(network, strategy, **options)
        with torch.no_grad():
            for batch in stream[:-1]:
                defended(batch.images)
        yield from outcomes(attack, defended.try_out, stream[-1].images, stream[-1].labels)


def markdown(path: Path = RESULT) -> str:
    """The outcome of both attacks, in percent."""
    units = read_results(path)["units"].values()
    columns = [("targeted", "success"), *((kind, m) for kind in ATTACKS for m in ("error", "unattacked"))]
    heads = {
        "success": "targeted success",
        "error": "benign error under attack",
        "unattacked": "benign error without attack",
    }
    measured = [column for column in columns if any(unit["attack"] == column[0] for unit in units)]
    titles = [heads[metric] if metric == "success" else f"{kind}: {heads[metric]}" for kind, metric in measured]
    rows = []
    for rule in dict.fromkeys(unit["rule"] for unit in units):
        cells = []
        for kind, metric in measured:
            values = [u["outcome"][metric] for u in units if u["rule"] == rule and u["attack"] == kind]
            cells.append(f"{100 * statistics.mean(values):.1f}" if values else "")
        rows.append([rule, *cells])
    return markdown_table(["%", *titles], rows)


def chosen_attacks(options: argparse.Namespace) -> dict[str, Attack]:
    """The published attacks, with fewer rows or steps if that is asked for; the share of malicious rows stays."""
    changed: dict[str, Attack] = {}
    for kind in options.attacks:
        attack = ATTACKS[kind]
        attack = attack.on_batches_of(options.rows or attack.rows)
        changed[kind] = replace(attack, steps=options.steps or attack.steps)
    return changed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 or auto")
    parser.add_argument("--attacks", nargs="+", choices=list(ATTACKS), default=list(ATTACKS))
    parser.add_argument("--rules", nargs="+", choices=RULES, default=RULES)
    parser.add_argument("--networks", type=int, nargs="+", default=[0], help="seeds of the zoo's ResNet-20")
    parser.add_argument("--shifts", nargs="+", default=SHIFTS, help="for the targeted attack")
    parser.add_argument("--batches", type=int, default=3, help="attacked batches of each split")
    parser.add_argument("--past", type=int, default=5, help="batches of the stream before the attacked one")
    parser.add_argument("--rows", type=int, help="rows of a batch; by default as published")
    parser.add_argument("--steps", type=int, help="steps of the attack; by default as published")
    parser.add_argument("--together", type=int, default=18, help="batches that are attacked in one pass")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--markdown", action="store_true", help="print the table of --out")
    options = parser.parse_args()
    if options.markdown:
        print(markdown(options.out))
        return
    torch.set_num_threads(options.threads)
    device, attacks = parse_device(options.device), chosen_attacks(options)
    setup: dict[str, Any] = {
        "data": "cifar10-test",
        "severity": SEVERITY,
        "past": options.past,
        "attacks": {kind: asdict(attack) for kind, attack in attacks.items()},
    }
    results = ResultsFile(options.out, setup, device)
    test, validation = cifar10("test"), cifar10("validation")
    for seed in options.networks:
        reference = f"zoo:resnet20-cifar10/batch/{seed}"
        with torch.no_grad():
            network = calibrated_network(reference, validation, device)
        for kind, attack in attacks.items():
            batches = dict(attacked_batches(test, attack, options.shifts, options.batches, options.past, device))
            for rule in options.rules:
                missing = [batch for batch in batches if f"{reference}, {kind}, {batch}, {rule}" not in results.units]
                for start in range(0, len(missing), options.together):
                    part = missing[start : start + options.together]
                    for batch, found in zip(
                        part, measure(network, rule, attack, [batches[name] for name in part]), strict=True
                    ):
                        unit = f"{reference}, {kind}, {batch}, {rule}"
                        results.add(unit, {"network": reference, "attack": kind, "rule": rule, "outcome": found})
                        print(unit, ", ".join(f"{name} {100 * v:.1f}" for name, v in found.items()), flush=True)
    print(f"\n{markdown(options.out)}\n\nWrote {options.out}")


if __name__ == "__main__":
    main()
