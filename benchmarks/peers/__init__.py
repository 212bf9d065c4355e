"""Rules of others for the same problem, each written from its published equations, to be measured on the same streams.

`PREDICTORS` makes one from a calibrated network. The first five are this package's own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .alpha_bn import AlphaBN
from .balanced_bn import BalancedBN
from .base import AdaptedNetwork, Predictor
from .iabn import IABN
from .lame import LAME, knn_affinities, rbf_affinities
from .medbn import MedBN
from .median_mad import MedianMAD
from .network import PixelNetwork, calibrated_network
from .tent import Tent
from .unmix_tns import UnMixTNS

STRATEGIES = {
    "train": "train",
    "batch": "batch",
    "prior(N=16)": "prior(N=16)",
    "auto": "auto",
    "auto_stream": "auto_stream",
    "IABN": IABN(),
    "α-BN": AlphaBN(),
    "UnMix-TNS": UnMixTNS(),
    "MedBN": MedBN(),
    "median/MAD": MedianMAD(),
}
"""Rules that are nothing but statistics."""

PREDICTORS: dict[str, Callable[[PixelNetwork], Predictor]] = {
    **{name: partial(AdaptedNetwork, strategy=strategy) for name, strategy in STRATEGIES.items()},
    "balanced BN": BalancedBN,
    "LAME, kNN": partial(LAME, affinities=knn_affinities),
    "LAME, rbf": partial(LAME, affinities=rbf_affinities),
    "TENT": Tent,
}

__all__ = ["PREDICTORS", "STRATEGIES", "AdaptedNetwork", "PixelNetwork", "Predictor", "calibrated_network"]
