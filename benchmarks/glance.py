"""The figure and the table of the README.

    python benchmarks/glance.py             # a quarter of an hour; writes results/glance.json and docs/glance.png
    python benchmarks/glance.py --draw      # measures nothing: draws the figure from results/
    python benchmarks/glance.py --markdown  # measures nothing: prints the table from results/

ResNet-20 networks that come with the package predict 500 CIFAR-10 test images in batches of 100, calibrated on 1,000
other clean images without labels. The figure shows one of them, clean and under corruptions of severity 5, as trained
and with `auto`. The table is the mean of three, clean and under all 19 corruptions of severity 3, with the images in
the order of the data set and sorted by class. They were trained after the rule of `AutoPredictor` was fixed. The last
row is that of `benchmarks/regret.py` for EfficientNet-Lite0, which was not used to develop it either.
"""

from __future__ import annotations

import base64
import io
import sys
from typing import Any

import altair as alt
import pandas as pd
import torch
from PIL import Image
from torch import Tensor, nn

import predbn
from measurements import RESULTS, markdown_table, read_results, write_results
from predbn.common import git_commit, hardware_of, package_versions
from predbn.data import sample
from predbn.metrics import t_mean
from predbn.models import load
from predbn.norm import predictor
from predbn.report import GREY, HUES, save
from predbn.shifts import corrupt, names

RESULT, FIGURE = RESULTS / "glance.json", RESULTS.parent / "docs" / "glance.png"
SHIFTS = ("clean", "fog", "gaussian_noise", "motion_blur", "frost", "contrast")
SEVERITY, COUNT, BATCH, SHOWN = 5, 500, 100, 13
WITHOUT, WITH = "as trained", 'predbn.adapt(model, "auto")'
AUTO = "auto(passes=4)"
STRATEGIES = {"train": "as trained", "batch": "`batch`", "prior(N=64)": "`prior(N=64)`", AUTO: "`AutoPredictor`"}
NETWORKS, TABLE_SEVERITY = 3, 3
NATURAL = RESULTS / "regret" / "test-natural.json", "natural/lite0 | 1000 | PACS art"


def shifted(images: Tensor, shift: str, severity: int = SEVERITY) -> Tensor:
    return images if shift == "clean" else corrupt(images, shift, severity, seed=0, index=range(len(images)))


@torch.inference_mode()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    predicted = torch.cat([model(batch).argmax(1) for batch in images.split(BATCH)])
    return (predicted == labels).double().mean().item()


def measured_table() -> list[dict[str, Any]]:
    """The accuracy of each network in each order under each shift, with each strategy."""
    data, clean = sample("test").take(range(COUNT)), sample("validation").images.split(BATCH)
    by_class = data.labels.argsort(stable=True)
    rows = []
    for seed in range(NETWORKS):
        model = load(f"zoo:resnet20-cifar10/batch/{seed}").eval()
        predbn.calibrate(model, clean)
        for shift in ("clean", *names("all")):
            images = shifted(data.images, shift, TABLE_SEVERITY)
            for order, positions in (("mixed", torch.arange(COUNT)), ("sorted", by_class)):
                scores = {
                    strategy: accuracy(predictor(model, strategy), images[positions], data.labels[positions])
                    for strategy in STRATEGIES
                }
                rows.append({"network": seed, "shift": shift, "order": order, "accuracy": scores})
        print(f"network {seed}", flush=True)
    return rows


def markdown() -> str:
    """The table of the README; intervals are those of the mean over the corruptions."""
    table = pd.DataFrame([{**row, **row["accuracy"]} for row in read_results(RESULT)["table"]])
    is_clean, is_mixed = table["shift"] == "clean", table["order"] == "mixed"
    lines = []
    for label, chosen in (
        ("ResNet-20, clean CIFAR-10", is_clean & is_mixed),
        ("19 corruptions", ~is_clean & is_mixed),
        ("and sorted by class", ~is_clean & ~is_mixed),
    ):
        scores = 100 * table[chosen].groupby("shift")[list(STRATEGIES)].mean()
        gain = t_mean((scores[AUTO] - scores["train"]).to_numpy())
        interval = f" ({signed(gain.low)} to {signed(gain.high)})" if len(scores) > 1 else ""
        lines.append([label, *(f"{scores[name].mean():.1f}" for name in STRATEGIES), signed(gain.estimate) + interval])
    path, unit = NATURAL
    (of_paintings,) = (row["scores"] for row in read_results(path)["units"][unit]["rows"] if row["order"] == "mixed")
    gained = signed(of_paintings[AUTO] - of_paintings["train"])
    lines.append(["EfficientNet-Lite0, paintings", *(f"{of_paintings[name]:.1f}" for name in STRATEGIES), gained])
    headings = ["accuracy, %", *STRATEGIES.values(), "gain"]
    return markdown_table(headings, lines)


def signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "\N{MINUS SIGN}")


def measure() -> None:
    model, data = load("zoo:resnet20-cifar10/batch/0"), sample("test").take(range(COUNT))
    predbn.calibrate(model, sample("validation").images.split(BATCH))
    scores = {}
    for shift in SHIFTS:
        images = shifted(data.images, shift)
        with predbn.adapted(model, "train"):
            without = accuracy(model, images, data.labels)
        with predbn.adapted(model, "auto"):
            scores[shift] = {WITHOUT: without, WITH: accuracy(model, images, data.labels)}
    environment = {"software": {"commit": git_commit(RESULTS), **package_versions()}, "hardware": hardware_of("cpu")}
    write_results(RESULT, {"accuracy": scores, "table": measured_table(), **environment})


def picture(shift: str) -> str:
    """One image under a shift, as a data URL."""
    pixels = shifted(sample("test").images[: SHOWN + 1], shift)[SHOWN]
    file = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).numpy()).resize((192, 192), Image.Resampling.NEAREST).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def draw() -> None:
    scores = read_results(RESULT)["accuracy"]
    rows = [
        {"shift": shift.replace("_", " "), "series": series, "accuracy": 100 * value}
        for shift, values in scores.items()
        for series, value in values.items()
    ]
    pictures = [{"shift": shift.replace("_", " "), "url": picture(shift), "at": 0} for shift in scores]
    names = [row["shift"] for row in pictures]
    x = alt.X("shift:N", sort=names, title=None, scale=alt.Scale(paddingInner=0.12, paddingOuter=0.04))
    top = (
        alt.Chart(pd.DataFrame(pictures), height=96)
        .mark_image(width=92, height=92)
        .encode(x=x.axis(None), y=alt.Y("at:Q", axis=None), url="url:N")
    )
    bars = alt.Chart(pd.DataFrame(rows), height=150).encode(
        x=x.axis(labelAngle=0, labelFontSize=14, ticks=False, domain=False),
        xOffset=alt.XOffset("series:N", sort=[WITHOUT, WITH]),
        y=alt.Y("accuracy:Q", axis=None, scale=alt.Scale(domain=[0, 108])),
    )
    colour = alt.Color(
        "series:N",
        scale=alt.Scale(domain=[WITHOUT, WITH], range=[GREY, HUES[0]]),
        legend=alt.Legend(title=None, orient="top", labelFontSize=14, labelLimit=0, symbolType="square"),
    )
    drawn = bars.mark_bar().encode(color=colour) + bars.mark_text(dy=-8, fontSize=14).encode(
        text=alt.Text("accuracy:Q", format=".0f")
    )
    title = f"Accuracy of one network on the same {COUNT} images, %"
    chart = alt.vconcat(top.properties(width=640), drawn.properties(width=640), spacing=6, title=title)
    save(chart.configure_view(stroke=None).configure_title(fontSize=16, anchor="start"), FIGURE)
    with Image.open(FIGURE) as drawn_at_full_depth:
        smaller = drawn_at_full_depth.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    smaller.save(FIGURE, optimize=True)


if __name__ == "__main__":
    if "--markdown" in sys.argv:
        print(markdown())
        sys.exit()
    if "--draw" not in sys.argv:
        measure()
    draw()
