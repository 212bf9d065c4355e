"""What a strategy loses to the better of `train` and `batch`, over many networks, shifts, orders and batch sizes.

    python benchmarks/regret.py --data DATA --half development --quick  # half an hour on two cores, with training
    python benchmarks/regret.py --data DATA --half development --device cuda
    python benchmarks/regret.py --data DATA --half test  # once, when the rule is final
    python benchmarks/regret.py --summary results/regret-development.json --plot regret.svg

`regret_cases/data.py` says how to fetch DATA; `regret_cases/split.py` which networks, shifts and natural sets belong to
which half. With --quick only the small networks, which are trained on the first run; the networks on CIFAR-10 need a
GPU once (`regret_cases/train_gpu.py`). With --natural also trained networks of others on pictures that nobody corrupted
(`regret_cases/natural.py`). The results are written after each data set; the same command continues them.
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import predbn
from measurements import RESULTS, ResultsFile, markdown_table, read_results
from predbn.common import AdaptationError
from predbn.norm import predictor
from regret_cases import natural, split
from regret_cases.orders import Rows, batches
from regret_cases.subjects import Subject, cases, small

STRATEGIES = ("prior(N=64)", "auto", "auto(passes=4)", "auto_stream")
BASELINES = ("train", "batch")
MAX_BATCHES = 100
"""Of a case, so batches of 1 and 8 have fewer examples than the others."""
MIN_BATCH_SIZE = 32
"""Of the cases that are summarised."""

Row = dict[str, Any]


def subject_of(name: str, options: argparse.Namespace) -> Subject:
    if name.startswith("natural/"):
        return natural.subject(name, options.half, options)
    return small(name, options.data, options.half)


def measure(
    subject: Subject, title: str, calibrated: nn.Module, calibration: int, specs: Sequence[str], examples: int
) -> list[Row]:
    """Score every strategy in every case of one data set; a score is None where a strategy refuses the batches."""
    planned = cases(subject, title, calibration)
    if not planned:
        return []
    data, rows = subject.sets[title](), list[Row]()
    for case in planned:
        if case.batch_size > len(data.classes):
            continue
        seed = zlib.crc32(repr((title, case)).encode())
        count = min(examples, MAX_BATCHES * case.batch_size)
        chosen = batches(data.classes, case.order, case.batch_size, count, seed)
        indices = torch.from_numpy(np.concatenate(chosen))
        scores: dict[str, float | None] = {}
        for spec in (*BASELINES, *specs):
            outputs = _outputs(calibrated, spec, data.inputs, chosen)
            scores[spec] = None if outputs is None else round(data.score(outputs, data.labels[indices]), 3)
        rows.append({**case._asdict(), "examples": len(indices), "scores": scores})
    return rows


@torch.no_grad()
def _outputs(calibrated: nn.Module, spec: str, inputs: Tensor, chosen: Iterable[Rows]) -> Tensor | None:
    """The outputs of a copy of the model, batch by batch in this order; None if the strategy refuses such batches."""
    model = predictor(copy.deepcopy(calibrated), spec).eval()
    device = next(model.parameters()).device
    try:
        return torch.cat([model(inputs[torch.from_numpy(rows)].to(device)).cpu() for rows in chosen])
    except AdaptationError:
        return None


def run(names: Sequence[str], options: argparse.Namespace) -> None:
    setup = {"half": options.half, "strategies": options.strategies, "examples": options.examples}
    results = ResultsFile(options.out, setup, torch.device(options.device))
    for name in names:
        start = time.perf_counter()
        subject = subject_of(name, options)
        for calibration in subject.calibrations:
            if calibration != subject.calibrations[0] and calibration > len(subject.clean):
                continue
            titles = [title for title in subject.sets if f"{name} | {calibration} | {title}" not in results.units]
            if not titles:
                continue
            model = copy.deepcopy(subject.model).to(options.device)
            clean = subject.clean[:calibration]
            if calibration:
                predbn.calibrate(model, (x.to(options.device) for x in clean.split(subject.batch_size)))
            for title in titles:
                rows = measure(subject, title, model, calibration, options.strategies, options.examples)
                unit = {"network": name, "kind": subject.kind, "calibration": len(clean), "shift": title}
                results.add(f"{name} | {calibration} | {title}", {**unit, "rows": rows})
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)


def rows_of(path: Path) -> list[Row]:
    """All cases of a file of results, flat."""
    units = read_results(path)["units"].values()
    return [{**{k: v for k, v in unit.items() if k != "rows"}, **row} for unit in units for row in unit["rows"]]


def regrets(rows: Iterable[Row], spec: str) -> list[float]:
    """What the strategy loses to the better baseline in each case, in points."""
    lost = []
    for row in rows:
        scores = row["scores"]
        if scores[spec] is not None:
            lost.append(max(scores[name] for name in BASELINES if scores[name] is not None) - scores[spec])
    return lost


def summary(rows: Sequence[Row]) -> str:
    """Mean, 95th percentile and worst regret of each strategy, over all cases and by what they have in common."""
    specs = list(rows[0]["scores"])
    of_natural = [
        [*(str(row[field]) for field in ("shift", "network", "order", "batch_size")), *map(str, row["scores"].values())]
        for row in rows
        if row["shift"] in split.NATURAL
    ]
    rows = [row for row in rows if row["batch_size"] >= MIN_BATCH_SIZE]
    tables = [f"{len(rows)} cases with batches of {MIN_BATCH_SIZE} and more: mean / 95th percentile / worst regret"]
    for field in ("", "kind", "order", "shift", "batch_size", "calibration", "network"):
        groups: dict[Any, list[Row]] = defaultdict(list)
        for row in rows:
            groups[row[field] if field else "all"].append(row)
        lines = [
            [str(group), str(len(members)), *(_cell(members, spec) for spec in specs)]
            for group, members in groups.items()
        ]
        tables.append(markdown_table([field, "cases", *specs], lines))
    tables.append("Data that nobody corrupted: accuracy, or mIoU, in %")
    tables.append(markdown_table(["set", "network", "order", "batch size", *specs], of_natural))
    return "\n\n".join(tables)


def plot(rows: Sequence[Row], path: Path) -> None:
    """The share of cases in which each strategy loses at most so many points, by order."""
    import altair as alt

    from predbn.report import save

    rows = [row for row in rows if row["batch_size"] >= MIN_BATCH_SIZE]
    values = []
    for order in dict.fromkeys(row["order"] for row in rows):
        for spec in rows[0]["scores"]:
            lost = np.sort(regrets([row for row in rows if row["order"] == order], spec))
            shares = np.quantile(lost, np.linspace(0, 1, 101)) if len(lost) else []
            values += [{"strategy": spec, "order": order, "points": p, "share": i} for i, p in enumerate(shares)]
    chart = (
        alt.Chart(alt.InlineData(values))
        .mark_line(strokeWidth=1.5, clip=True)
        .encode(
            x=alt.X("points:Q", title="regret in points").scale(domain=(-20, 30)),
            y=alt.Y("share:Q", title="cases that lose less, in %"),
            color=alt.Color("strategy:N", title=None, sort=list(rows[0]["scores"])),
        )
        .properties(width=240, height=180)
        .facet(facet=alt.Facet("order:N", title=None), columns=2)
    )
    save(chart, path)


def _cell(rows: Sequence[Row], spec: str) -> str:
    lost = regrets(rows, spec)
    return f"{np.mean(lost):.1f} / {np.quantile(lost, 0.95):.1f} / {max(lost):.1f}" if lost else "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of data sets, see regret_cases/data.py")
    parser.add_argument("--half", choices=("development", "test"), default="development")
    parser.add_argument("--quick", action="store_true", help="only the small networks")
    parser.add_argument("--networks", nargs="+", help="only these")
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES), help="such as 'auto(passes=4)'")
    parser.add_argument("--examples", type=int, default=1000, help="of a case, where a data set has so many")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="default: results/regret-<half>.json")
    parser.add_argument("--summary", type=Path, nargs="+", help="measure nothing: summarise these files")
    parser.add_argument("--plot", type=Path, help="draw the distribution of regret into this .svg or .png")
    natural.add_arguments(parser)
    options = parser.parse_args()
    if options.summary is None:
        if options.data is None:
            parser.error("--data is missing: the folder of data sets, see regret_cases/data.py")
        options.out = options.out or RESULTS / f"regret-{options.half}.json"
        left_out = ("cifar10/", "natural/") if options.quick else () if options.natural else ("natural/",)
        names = [name for name in options.networks or split.NETWORKS[options.half] if not name.startswith(left_out)]
        torch.set_num_threads(1)
        warnings.filterwarnings("ignore", "calibration saw fewer than|the model is not calibrated|AutoPredictor takes")
        run(names, options)
    rows = [row for path in options.summary or [options.out] for row in rows_of(path)]
    print(summary(rows))
    if options.plot is not None:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
