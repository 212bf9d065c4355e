"""What is computed for the paper's figures: a few plans, each of which serves several of them.

Every plan exists twice. The full one is the paper's: the 10,000 CIFAR-10 test images under 19 corruptions at five
severities, in batches of 500. The quick one is a smaller version of the same on the embedded sample, for a CPU and a
minute's patience: it shows that everything works, and what it finds is not evidence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from predbn.evaluation import Model, Plan

from .auto_plans import CIFAR_AUTO_PLANS, IMAGENET_AUTO_PLANS
from .clicks import LARGER_EPS, LATER, NETWORK, REAL, SYNTHETIC, UNSETTLED
from .crops import BLACK, CONTINUED
from .imagenet import IMAGENET, IMAGENET_PLANS
from .networks import FIXUP, NORMALISED, ONE_LAYER, WITH_BATCH_NORM, seeds_of, with_eps

__all__ = ["BATCH_SIZES", "CRITEO", "EPS", "INSIDE", "LARGE_EPS", "PLANS", "QUICK_IMAGES", "SEEDS", "PaperPlan"]

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 100, 200, 500)
EPS = (1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0)
LARGE_EPS = 1e-1
"""The second eps of the comparison of normalisations, two orders above the one of training."""

SEEDS = 3
"""Networks of a kind, wherever the paper shows single models."""

INSIDE = "inside"
"""The plan that is carried out by looking into the networks rather than at their predictions."""

CRITEO = "criteo"
"""The home of K1's plans, which are carried out with rows and networks of the user's."""

QUICK_IMAGES = 200
_QUICK_BATCH = 100
_QUICK_SEVERITIES = (1, 5)


@dataclass(frozen=True)
class PaperPlan:
    """A plan with its name, which is that of its folder, in both sizes."""

    name: str
    what: str
    full: Plan
    quick: Plan
    home: str = "cifar10"
    """The folder of results that it belongs to."""

    def of(self, quick: bool) -> Plan:
        """The plan in the size asked for."""
        return self.quick if quick else self.full


def _small(plan: Plan, **changes: object) -> Plan:
    """The plan on the embedded sample."""
    small = {
        "data": "sample",
        "images": QUICK_IMAGES,
        "batch_sizes": (_QUICK_BATCH,),
        "severities": _QUICK_SEVERITIES,
    }
    return replace(plan, **{**small, **changes})  # type: ignore[arg-type]


def _models(*references: str) -> tuple[Model, ...]:
    return tuple(Model(reference) for reference in references)


def _first(references: list[str], count: int) -> tuple[Model, ...]:
    return _models(*references[:count])


_OTHERS = [
    name
    for network in NORMALISED
    for name in (*seeds_of(network, SEEDS), *(with_eps(one, LARGE_EPS) for one in seeds_of(network, SEEDS)))
] + seeds_of(FIXUP, SEEDS)

_METHODS = Plan(
    models=_models(f"{WITH_BATCH_NORM}/*"),
    data="cifar10",
    methods=("vanilla", "temperature", "ensemble"),
    strategies=("train", "batch"),
)
_CROPS = Plan(models=_models(f"{WITH_BATCH_NORM}/*"), data="cifar10", strategies=("train", "batch"), shifts=("clean",))
_BATCH_SIZES = Plan(
    models=_models(f"{WITH_BATCH_NORM}/0"), data="cifar10", strategies=("batch",), batch_sizes=(*BATCH_SIZES, "all")
)
_STRATEGIES = Plan(
    models=_first(seeds_of(WITH_BATCH_NORM, SEEDS), SEEDS),
    data="cifar10",
    strategies=("frozen", "batch[layers=last]", f"train[eps={LARGE_EPS}]", f"batch[eps={LARGE_EPS}]"),
)
_MIXTURES = Plan(
    models=_first(seeds_of(WITH_BATCH_NORM, SEEDS), SEEDS),
    data="cifar10",
    strategies=("train", "batch"),
    shifts=("mixed-5", "mixed-19"),
    seeds=tuple(range(10)),
)
_EPS = Plan(
    models=_models(f"{WITH_BATCH_NORM}/*"),
    data="cifar10",
    methods=("vanilla", "ensemble"),
    strategies=tuple(f"batch[eps={eps}]" for eps in EPS),
    shifts=("clean",),
    seeds=tuple(range(5)),
)
_NORMALISATIONS = Plan(models=_models(*_OTHERS), data="cifar10", strategies=("train",))
_ONE_LAYER = Plan(models=_models(*seeds_of(ONE_LAYER, SEEDS)), data="cifar10", strategies=("train", "batch"))
_INSIDE = Plan(
    models=_models(*(f"{network}/0" for network in (WITH_BATCH_NORM, *NORMALISED, FIXUP, ONE_LAYER))),
    data="cifar10",
    strategies=("train", "batch"),
)

_CLICKS = Plan(
    models=_models(f"{NETWORK}/*"),
    data="criteo",
    methods=("vanilla", "temperature", "ensemble"),
    strategies=("train", "batch"),
    orders=("official",),
    seeds=tuple(range(5)),
)
_EPS_CLICKS = replace(
    _CLICKS, methods=("vanilla",), strategies=("batch", f"train[eps={LARGE_EPS}]", f"batch[eps={LARGE_EPS}]")
)
_SYNTHETIC_CLICKS = replace(
    _CLICKS, strategies=("train", "batch", f"train[eps={LARGE_EPS}]", f"batch[eps={LARGE_EPS}]"), seeds=(0,)
)

PLANS = {
    plan.name: plan
    for plan in (
        PaperPlan(
            "methods",
            "three methods with train and prediction-time BN on every split",
            _METHODS,
            _small(_METHODS, models=_models(f"{WITH_BATCH_NORM}/[0-2]")),
        ),
        PaperPlan(
            BLACK,
            "the clean test images cropped as in training, with its black border",
            _CROPS,
            _small(_CROPS, models=_models(f"{WITH_BATCH_NORM}/[0-2]")),
        ),
        PaperPlan(
            CONTINUED,
            "the same crops with a border that continues the picture",
            _CROPS,
            _small(_CROPS, models=_models(f"{WITH_BATCH_NORM}/[0-2]")),
        ),
        PaperPlan(
            "batch-sizes",
            "prediction-time BN with batches from one image to a whole split (one network, for a batch of one image "
            "means 10,000 forward passes a split)",
            _BATCH_SIZES,
            _small(_BATCH_SIZES, batch_sizes=(1, 4, 16, 64, 100, "all"), severities=(5,)),
        ),
        PaperPlan(
            "strategies",
            "frozen statistics, those of the batch in the last layer alone, and a larger eps, on every split",
            _STRATEGIES,
            _small(_STRATEGIES, models=_models(f"{WITH_BATCH_NORM}/0"), images=QUICK_IMAGES // 2),
        ),
        PaperPlan(
            "mixtures",
            "batches of 5 and of 19 kinds of shift at once, drawn ten times",
            _MIXTURES,
            _small(_MIXTURES, models=_models(f"{WITH_BATCH_NORM}/0"), seeds=(0, 1, 2)),
        ),
        PaperPlan(
            "eps",
            "eps at prediction from 1e-5 to 10 on the clean test set",
            _EPS,
            _small(_EPS, models=_models(f"{WITH_BATCH_NORM}/[0-2]"), seeds=(0, 1, 2)),
        ),
        PaperPlan(
            "normalisations",
            "networks with instance, layer and group normalisation, each with two eps, and with none (Fixup)",
            _NORMALISATIONS,
            _small(
                _NORMALISATIONS,
                models=_models(*(name for name in _OTHERS if name.endswith("/0"))),
                images=QUICK_IMAGES // 2,
            ),
        ),
        PaperPlan(
            "one-layer",
            "networks whose one batch norm stands before the final linear layer",
            _ONE_LAYER,
            _small(_ONE_LAYER, models=_models(f"{ONE_LAYER}/0"), images=QUICK_IMAGES // 2),
        ),
        PaperPlan(
            INSIDE,
            "activations, embeddings and logits of one network of every kind on every split",
            _INSIDE,
            _small(_INSIDE, severities=(5,), images=QUICK_IMAGES // 2),
        ),
        PaperPlan(
            REAL,
            "three methods with train and prediction-time BN on the test rows of Criteo under every randomisation, "
            "drawn five times",
            _CLICKS,
            _CLICKS,
            CRITEO,
        ),
        PaperPlan(
            LATER,
            "the same networks on rows of a later period, with nothing randomised",
            replace(_CLICKS, shifts=("clean",), seeds=(0,)),
            replace(_CLICKS, shifts=("clean",), seeds=(0,)),
            CRITEO,
        ),
        PaperPlan(
            UNSETTLED,
            "as criteo, with networks whose running statistics had too few steps to settle",
            replace(_CLICKS, methods=("vanilla",)),
            replace(_CLICKS, methods=("vanilla",)),
            CRITEO,
        ),
        PaperPlan(
            LARGER_EPS,
            "as criteo, with a larger eps at prediction",
            _EPS_CLICKS,
            _EPS_CLICKS,
            CRITEO,
        ),
        PaperPlan(
            SYNTHETIC,
            "as criteo, on synthetic rows, drawn once, also with a larger eps",
            _SYNTHETIC_CLICKS,
            replace(_SYNTHETIC_CLICKS, severities=(25, 95)),
            CRITEO,
        ),
        *(PaperPlan(name, what, plan, plan, IMAGENET) for name, (what, plan) in IMAGENET_PLANS.items()),
        *(PaperPlan(name, what, plan, _small(plan, **less)) for name, (what, plan, less) in CIFAR_AUTO_PLANS.items()),
        *(PaperPlan(name, what, plan, plan, IMAGENET) for name, (what, plan) in IMAGENET_AUTO_PLANS.items()),
    )
}
