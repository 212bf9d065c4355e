"""A plan in two sizes, full and quick.

The full size is the paper's. The quick size is a smaller version on the embedded sample of CIFAR-10 that takes minutes
on a CPU. It shows that everything works; its results are not evidence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from predbn.evaluation import Plan

CIFAR10, CRITEO, IMAGENET = "cifar10", "criteo", "imagenet"
"""The data sets, and the names of their folders of results."""

QUICK_IMAGES = 200


@dataclass(frozen=True)
class PaperPlan:
    """A plan in both sizes.

    name      also the name of its folder of results
    what      what it computes, in words
    data_set  the folder of results that it belongs to
    """

    name: str
    what: str
    full: Plan
    quick: Plan
    data_set: str = CIFAR10

    def version(self, quick: bool) -> Plan:
        return self.quick if quick else self.full


PLANS: dict[str, PaperPlan] = {}
"""All plans by name. The modules that define plans add them with `add_plans`."""


def add_plans(*plans: PaperPlan) -> tuple[PaperPlan, ...]:
    """Add plans to `PLANS`, and return them."""
    PLANS.update({plan.name: plan for plan in plans})
    return plans


def cifar10_plan(name: str, what: str, full: Plan, **quick_changes: object) -> PaperPlan:
    """A plan on CIFAR-10 whose quick version is on the embedded sample, with further changes if named."""
    quick = {"data": "sample", "images": QUICK_IMAGES, "batch_sizes": (100,), "severities": (1, 5)}
    return PaperPlan(name, what, full, replace(full, **{**quick, **quick_changes}))  # type: ignore[arg-type]


def imagenet_plan(name: str, what: str, plan: Plan) -> PaperPlan:
    """A plan on ImageNet, the same in both sizes, because no images come with the package for a quick one."""
    return PaperPlan(name, what, plan, plan, IMAGENET)
