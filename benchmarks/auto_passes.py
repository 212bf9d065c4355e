"""`auto` in one pass and in several, in streams with all classes mixed, in bursts and sorted.

    predbn evaluate --plan results/auto-passes/plan.toml --out results/auto-passes --device cuda  # four minutes
    python benchmarks/auto_passes.py  # the table of docs/auto.md

The run uses the images that come with the package: 2,000 test images of CIFAR-10, clean and under the 15 corruptions
that were not used to develop `auto`, at severities 3 and 5; `auto` is calibrated on 1,000 validation images.
"""

from __future__ import annotations

from pathlib import Path

from predbn.evaluation import Results

RUN = Path(__file__).resolve().parent.parent / "results" / "auto-passes"
STRATEGIES = {
    "train": "`train`",
    "batch": "`batch`",
    "auto(skewed=False, calibrated=True)": "`auto`",
    "auto(skewed=True, calibrated=True)": "`auto(skewed=True)`",
    "auto(skewed=False, calibrated=True, passes=2)": "`auto(passes=2)`",
    "auto(skewed=False, calibrated=True, passes=4)": "`auto(passes=4)`",
}
ORDERS = {"shuffled": "mixed", "dirichlet:0.1": "Dirichlet 0.1", "by_class": "sorted"}
SEVERITIES = {0: "clean", 3: "severity 3", 5: "severity 5"}


def markdown(run: Path = RUN) -> str:
    """Mean accuracy in %, over networks and corruptions."""
    table = Results.load(run).frame
    table = table[table["metric"] == "accuracy"]
    means = 100 * table.groupby(["batch_size", "strategy", "order", "severity"])["value"].mean()
    columns = [(order, severity) for order in ORDERS for severity in SEVERITIES]
    lines = ["| batch | strategy | " + " | ".join(f"{ORDERS[o]}, {SEVERITIES[s]}" for o, s in columns) + " |"]
    lines.append("|--:|---|" + "--:|" * len(columns))
    for size in sorted(set(table["batch_size"])):
        for strategy, name in STRATEGIES.items():
            values = (f"{means[size, strategy, order, severity]:.1f}" for order, severity in columns)
            lines.append(f"| {size} | {name} | " + " | ".join(values) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())
