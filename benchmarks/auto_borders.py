"""`auto` on networks whose training crops had a black border, and on some whose border continued the image.

    predbn train cifar10 --recipe cosine --seeds 0,1 --border-study --out borders  # on a GPU
    predbn evaluate --plan results/auto-borders/plan.toml --out results/auto-borders  # an hour on one core
    python benchmarks/auto_borders.py  # the table of docs/auto-evidence.md

400 test images of CIFAR-10, clean and under the 15 corruptions that were not used to develop `auto`, at severity 3.
"""

from __future__ import annotations

from pathlib import Path

from measurements import RESULTS, markdown_table
from predbn.evaluation import Results

RUN = RESULTS / "auto-borders"
BORDERS = {"zero-4": "black", "reflect-4": "reflected"}
STRATEGIES = {
    "train": "`train`",
    "batch": "`batch`",
    "prior(N=16)": "`prior(N=16)`",
    "auto(calibrated=True, passes=1)": "`auto(passes=1)`",
    "auto(calibrated=True, passes=4)": "`auto`",
}
ORDERS = {"shuffled": "mixed", "by_class": "sorted"}
PARTS = {0: "clean", 3: "shifted"}


def markdown(run: Path = RUN) -> str:
    """Mean accuracy in %, over networks and corruptions; the columns are batch sizes."""
    table = Results.load(run).frame
    table = table[table["metric"] == "accuracy"]
    border_of = table["model"].str.extract(f"({'|'.join(BORDERS)})", expand=False)
    means = (
        100 * table.groupby([border_of, "strategy", "order", "severity", "batch_size"], observed=True)["value"].mean()
    )
    sizes = sorted(set(table["batch_size"]))
    columns = [(order, severity, size) for order in ORDERS for severity in PARTS for size in sizes]
    heads = [
        f"{ORDERS[order]}, {PARTS[severity]}: {size}" if size == sizes[0] else str(size)
        for order, severity, size in columns
    ]
    rows = [
        [f"{words} border, {label}", *(f"{means[(border, strategy, *column)]:.1f}" for column in columns)]
        for border, words in BORDERS.items()
        for strategy, label in STRATEGIES.items()
    ]
    return markdown_table(["", *heads], rows)


if __name__ == "__main__":
    print(markdown())
