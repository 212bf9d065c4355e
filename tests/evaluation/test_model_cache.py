"""Models are loaded once, evicted when memory is short, and predict the same afterwards."""

import pytest

from predbn.evaluation import EvaluationError
from predbn.evaluation.model_cache import ModelCache, check_classes

from . import tiny


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
