"""D4, figure A15: distributions of each dimension of the embeddings and of the logits."""

from __future__ import annotations

from predbn.report import Panel

from ..claims import Claim, Measurement
from ..experiment import Experiment
from ..inside import CHANNELS
from ..measure import gain
from ..plans import INSIDE
from ..runs import Runs
from .activation_distributions import layer_panel
from .activations import INSIDE_PREDICTION, INSIDE_TRAIN, table_of

__all__ = ["EXPERIMENT"]


def _larger(runs: Runs) -> list[Measurement]:
    return [gain(runs, INSIDE_TRAIN, INSIDE_PREDICTION, "logit_size")]


def _draw(runs: Runs) -> list[Panel]:
    rows = table_of(runs, "histograms")
    caption = "Over the training images, and over the test images of all shifted splits with both strategies."
    panel = Panel("dimensions", "Dimensions of embeddings and logits", caption, ("of",))
    panel.variants["embeddings",] = layer_panel(rows, ["embeddings"], "Embeddings", CHANNELS)
    panel.variants["logits",] = layer_panel(rows, ["logits"], "Logits", 10, columns=5)
    return [panel]


EXPERIMENT = Experiment(
    id="D4",
    figure="figure A15",
    title="distributions of embeddings and logits",
    plans=(INSIDE,),
    claims=(
        Claim(
            "D4.1",
            "figure A15",
            "With train BN the logits of shifted images are larger than with prediction-time BN.",
            "Their root mean square, over all 95 splits.",
            _larger,
        ),
    ),
    draw=_draw,
)
