"""What made-up worlds of results have in common."""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from predbn.evaluation import Plan
from predbn.evaluation.tables import HITS, RELIABILITY, RESULTS
from predbn.shifts import names


def keys(plan: Plan, whole_split: int = 0) -> Iterator[dict[str, Any]]:
    """The keys that a run of the plan would have, with ten networks for the pattern `*`."""
    sets = {name: ["clean", *names(name)] for name in ("all", "standard")}
    kinds = [kind for shift in plan.shifts for kind in sets.get(shift, [shift])]
    for model, method in product(plan.models, plan.methods):
        network, _, seed = model.reference.rpartition("/")
        members = [model.name] if seed.isdigit() else [f"{network}/{n}" for n in range(10 if seed == "*" else 3)]
        without_layers = "cifar10/" in network and not network.endswith(("/batch", "/last"))
        strategies = ("train",) if without_layers else plan.strategies
        settings = product(
            [model.name] if method == "ensemble" else members,
            strategies,
            plan.batch_sizes,
            kinds,
            plan.orders,
            plan.seeds,
        )
        for name, strategy, size, kind, order, number in settings:
            for severity in (0,) if kind == "clean" else plan.severities:
                yield {
                    "model": name,
                    "method": method,
                    "strategy": strategy,
                    "corruption": kind,
                    "severity": severity,
                    "batch_size": whole_split if size == "all" else size,
                    "order": order,
                    "seed": number,
                }


def write_run(
    folder: Path,
    plan: str,
    data: dict[str, Any],
    rows: list[dict[str, Any]],
    *,
    quick: bool = False,
    hits: list[dict[str, Any]] | None = None,
    bins: list[dict[str, Any]] | None = None,
) -> None:
    """The files of a run in the subfolder of its plan."""
    folder = folder / plan
    folder.mkdir(parents=True)
    tables = {"results": (rows, RESULTS), "reliability": (bins or [], RELIABILITY), "hits": (hits or [], HITS)}
    for name, (content, schema) in tables.items():
        pq.write_table(pa.Table.from_pylist(content, schema), folder / f"{name}.parquet")
    card = {"paper": {"plan": plan, "quick": quick}, "data": {"name": "made up", **data}}
    (folder / "card.json").write_text(json.dumps(card))
