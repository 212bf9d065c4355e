"""Models are loaded once, evicted when memory is short, and predict the same afterwards."""

import pytest
import torch

from predbn.evaluation import EvaluationError, Model
from predbn.evaluation.model_cache import ModelCache, check_classes
from predbn.evaluation.predictor import copy_sharing_tensors
from predbn.norm import adapt, adapted

from . import tiny

IMAGES = torch.randint(0, 256, (24, 3, 32, 32), dtype=torch.uint8)


def loadable_models(monkeypatch, count=4):
    """Models that are loaded from a reference, and the list of the references that were loaded."""
    loaded = []

    def load(reference, **_):
        loaded.append(reference)
        return tiny.classifier(int(reference[-1]))

    monkeypatch.setattr("predbn.models.open_model", load)
    return {f"t/{k}": Model(f"t/{k}") for k in range(count)}, loaded


def test_a_copy_that_shares_tensors_is_adapted_independently():
    model = tiny.classifier()
    copy = copy_sharing_tensors(model)
    adapt(copy, "batch")
    assert {id(p) for p in copy.parameters()} == {id(p) for p in model.parameters()}
    assert {id(b) for b in copy.buffers()} == {id(b) for b in model.buffers()}
    assert not torch.equal(copy(IMAGES), model(IMAGES))
    with adapted(model, "batch"):
        torch.testing.assert_close(copy(IMAGES), model(IMAGES))


def test_models_are_grouped_and_evicted_by_the_memory_limit(monkeypatch):
    members, loaded = loadable_models(monkeypatch)
    nbytes = sum(t.nbytes for t in (*tiny.classifier().parameters(), *tiny.classifier().buffers()))
    cache = ModelCache(members, memory_limit=2 * nbytes)
    assert list(cache.groups_in_memory(members)) == [["t/0", "t/1"], ["t/2", "t/3"]]
    assert len(cache._entries) == 2
    loaded.clear()
    large = ModelCache(members)
    assert list(large.groups_in_memory([*members, *members])) == [list(members)]
    large.model("t/0")
    assert len(loaded) == 4


def test_classes_must_be_those_of_the_data():
    check_classes("m", 10, tuple("abcdefghij"))
    check_classes("m", 10, tuple(map(str, range(7))))
    for classes, data_classes in ((9, 10), (11, 10)):
        with pytest.raises(EvaluationError, match=f"m has {classes} classes, but the data has {data_classes}"):
            check_classes("m", classes, tuple("abcdefghij"))


@pytest.mark.parametrize("all_or_others", ["all", "none", "others"])
def test_a_model_is_restricted_to_some_of_imagenets_classes_only(all_or_others):
    from predbn.data import wnids

    classes = {"all": wnids(), "none": (), "others": ("cat", "dog")}[all_or_others]
    model = tiny.classifier(0, 1000)
    cache = ModelCache({}, in_memory={"thousand": model})
    cache.restrict_to(classes)
    assert cache.original("thousand") is model
