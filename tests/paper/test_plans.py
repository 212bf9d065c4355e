"""The plans have what the paper has, and the plan of every experiment exists."""

import pytest

from predbn.paper import EXPERIMENTS, PLANS
from predbn.paper.plans.base import QUICK_IMAGES
from predbn.paper.plans.cifar10 import CIFAR10_PLANS


def test_the_full_plans_are_those_of_the_paper():
    sizes = PLANS["batch-sizes"].full.batch_sizes
    assert sizes == (1, 2, 4, 8, 16, 32, 64, 100, 200, 500, "all")
    eps = [float(text.split("=")[1].rstrip("]")) for text in PLANS["eps"].full.strategies]
    assert (min(eps), max(eps)) == (1e-5, 10)
    assert PLANS["mixtures"].full.shifts == ("mixed-5", "mixed-19")
    kinds = [model.reference.split("/")[1] for model in PLANS["normalisations"].full.models]
    both = ("instance", "instance[eps=0.1]", "layer", "layer[eps=0.1]", "group", "group[eps=0.1]", "fixup")
    assert {kind: kinds.count(kind) for kind in kinds} == dict.fromkeys(both, 3)


@pytest.mark.parametrize("plan", CIFAR10_PLANS, ids=lambda plan: plan.name)
def test_full_is_all_of_cifar10_and_quick_is_a_part_of_the_sample(plan):
    assert plan.full.data == "cifar10"
    assert (plan.full.images is None) == (plan.name != "inside-crops")
    assert plan.quick.data == "sample"
    assert plan.quick.images in (QUICK_IMAGES, QUICK_IMAGES // 2)
    assert plan.name in ("batch-sizes", "inside-crops") or plan.full.batch_sizes == (500,)
    assert plan.quick.strategies == plan.full.strategies


def test_every_plan_is_used_and_every_experiment_has_its_plans():
    wanted = {plan for experiment in EXPERIMENTS.values() for plan in experiment.plans}
    assert wanted == set(PLANS)
    ids = [claim.id for experiment in EXPERIMENTS.values() for claim in experiment.claims]
    assert len(ids) == len(set(ids))
