"""`auto` by default and in one pass, in batches of several sizes that hold all classes.

    predbn evaluate --plan results/auto-default/plan.toml --out results/auto-default  # ten minutes on one core
    python benchmarks/auto_sizes.py  # the table of docs/auto-evidence.md

The run uses images that come with the package: 400 test images of CIFAR-10, clean and under the 15 corruptions that
were not used to develop `auto`, at severity 3; `auto` is calibrated on 1,000 validation images.
"""

from __future__ import annotations

from pathlib import Path

from measurements import RESULTS, markdown_table
from predbn.evaluation import Results

RUN = RESULTS / "auto-default"
STRATEGIES = {
    "train": "`train`",
    "batch": "`batch`",
    "prior(N=16)": "`prior(N=16)`",
    "auto(skewed=False, calibrated=True)": "`auto(passes=1)`, not robust",
    "auto(calibrated=True, passes=4)": "`auto`",
}
PARTS = {0: "clean", 3: "shifted"}


def markdown(run: Path = RUN) -> str:
    """Mean accuracy in %, over networks and corruptions."""
    table = Results.load(run).frame
    table = table[table["metric"] == "accuracy"]
    means = 100 * table.groupby(["strategy", "severity", "batch_size"], observed=True)["value"].mean()
    sizes = sorted(set(table["batch_size"]))
    columns = [(severity, size) for severity in PARTS for size in sizes]
    heads = (f"{PARTS[severity]}: {size}" if size == sizes[0] else str(size) for severity, size in columns)
    rows = [
        [name, *(f"{means[strategy, severity, size]:.1f}" for severity, size in columns)]
        for strategy, name in STRATEGIES.items()
    ]
    return markdown_table(["", *heads], rows)


if __name__ == "__main__":
    print(markdown())
