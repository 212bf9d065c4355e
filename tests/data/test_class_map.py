"""Which class is which output, by name."""

import pytest
import torch

from predbn.data import DataError, Images, number_classes, read_class_map

LABELS = torch.tensor([0, 1, 1, 0])


def images(*classes: str) -> Images:
    return Images(torch.zeros(4, 3, 2, 2, dtype=torch.uint8), LABELS, torch.arange(4), classes, "mine")


def test_a_map_has_one_name_per_line(tmp_path):
    path = tmp_path / "classes.txt"
    path.write_text("cat\n\n dog \n")
    assert read_class_map(path) == {"cat": 0, "dog": 1}
    for text, message in (("", "names no class"), ("cat\ncat", "names 'cat' twice")):
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            read_class_map(path)


def test_labels_become_outputs():
    mapped = images("dog", "cat").for_model({"cat": 0, "bird": 1, "dog": 2}, 4)
    assert mapped.labels.tolist() == [2, 0, 0, 2]
    assert mapped.classes == ("cat", "bird", "dog", "3")


def test_what_does_not_fit_is_an_error():
    with pytest.raises(DataError, match=r"class 'dgo', which the model does not know \(did you mean 'dog'\?\)"):
        images("dgo", "cat").for_model(number_classes("m", ["cat", "dog"]), 2)
    with pytest.raises(DataError, match="gives 'dog' the number 7, but the outputs of the model are numbered"):
        images("dog", "cat").for_model({"cat": 0, "dog": 7}, 4)
    with pytest.raises(DataError, match=r"has 2 classes, but the model has 3 outputs: .* --class-map"):
        images("dog", "cat").for_model(None, 3)
