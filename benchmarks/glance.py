"""The figure of the README: the same images under six shifts, and the accuracy of a network without and with `auto`.

    python benchmarks/glance.py         # half a minute on one core; writes results/glance.json and docs/glance.png
    python benchmarks/glance.py --draw  # measures nothing: draws the figure from results/

A ResNet-20 that comes with the package predicts 500 CIFAR-10 test images in batches of 100, clean and under corruptions
of severity 5. It is calibrated on 1,000 other clean images without labels.
"""

from __future__ import annotations

import base64
import io
import sys

import altair as alt
import pandas as pd
import torch
from PIL import Image
from torch import Tensor, nn

import predbn
from measurements import RESULTS, read_results, write_results
from predbn.common import git_commit, hardware_of, package_versions
from predbn.data import sample
from predbn.models import load
from predbn.report import GREY, HUES, save
from predbn.shifts import corrupt

RESULT, FIGURE = RESULTS / "glance.json", RESULTS.parent / "docs" / "glance.png"
SHIFTS = ("clean", "fog", "gaussian_noise", "motion_blur", "frost", "contrast")
SEVERITY, COUNT, BATCH, SHOWN = 5, 500, 100, 13
WITHOUT, WITH = "as trained", 'predbn.adapt(model, "auto")'


def shifted(images: Tensor, shift: str) -> Tensor:
    return images if shift == "clean" else corrupt(images, shift, SEVERITY, seed=0, index=range(len(images)))


@torch.inference_mode()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    predicted = torch.cat([model(batch).argmax(1) for batch in images.split(BATCH)])
    return (predicted == labels).double().mean().item()


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
    software = {"commit": git_commit(RESULTS), **package_versions()}
    write_results(RESULT, {"accuracy": scores, "software": software, "hardware": hardware_of("cpu")})


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
    if "--draw" not in sys.argv:
        measure()
    draw()
