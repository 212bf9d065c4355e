"""Rules of others for the same problem, each written from its published equations, to be measured on the same streams.

`make_predictors` makes all of them, and this package's own, from a calibrated network.
"""

from __future__ import annotations

from predbn.norm import Strategy

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

STRATEGIES: dict[str, str | Strategy] = {
    "train": "train",
    "batch": "batch",
    "prior(N=16)": "prior(N=16)",
    "auto": "auto",
    "auto(passes=4)": "auto(passes=4)",
    "auto_stream": "auto_stream",
    "IABN": IABN(),
    "α-BN": AlphaBN(),
    "MedBN": MedBN(),
    "median/MAD": MedianMAD(),
}
"""Rules that are nothing but statistics, and draw nothing. The first six are this package's."""


def make_predictors(network: PixelNetwork, *, seed: int) -> dict[str, Predictor]:
    """All rules by name. The seed is for UnMix-TNS, which begins at random."""
    return {
        **{name: AdaptedNetwork(network, strategy) for name, strategy in STRATEGIES.items()},
        "UnMix-TNS": AdaptedNetwork(network, UnMixTNS(seed=seed)),
        "balanced BN": BalancedBN(network),
        "LAME, kNN": LAME(network, knn_affinities),
        "LAME, rbf": LAME(network, rbf_affinities),
        "TENT": Tent(network),
    }


__all__ = ["STRATEGIES", "AdaptedNetwork", "PixelNetwork", "Predictor", "calibrated_network", "make_predictors"]
