"""Which class is which output, by name."""

from __future__ import annotations

import pytest
import torch

from predbn.data import DataError, Images, number_classes, read_class_map

LABELS = torch.tensor([0, 1, 1, 0])


def images(*classes: str) -> Images:
    return Images(torch.zeros(4, 3, 2, 2, dtype=torch.uint8), LABELS, torch.arange(4), classes, "mine")


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("a.txt", "cat\n\n dog \n", {"cat": 0, "dog": 1}),
        ("a.json", '["cat", "dog"]', {"cat": 0, "dog": 1}),
        ("a.json", '{"cat": 3, "kitten": 3}', {"cat": 3, "kitten": 3}),
    ],
)
def test_a_map_is_a_list_of_names_or_an_object(tmp_path, file, text, expected):
    (tmp_path / file).write_text(text)
    assert read_class_map(tmp_path / file) == expected


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("a.txt", "", "names no class"),
        ("a.txt", "cat\ncat", "names 'cat' twice"),
        ("a.json", "{", "is not JSON"),
        ("a.json", '{"cat": "x"}', "neither a list of names nor an object"),
        ("a.json", '{"cat": -1}', "neither a list of names nor an object"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path, file, text, message):
    (tmp_path / file).write_text(text)
    with pytest.raises(DataError, match=message):
        read_class_map(tmp_path / file)


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
