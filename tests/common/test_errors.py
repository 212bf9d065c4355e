"""All errors of the package have one base class, which the command line catches."""

from __future__ import annotations

import predbn
from predbn import common
from predbn.common import NotMeasured, PaperError, PredbnError


def test_every_error_is_a_predbn_error_and_a_value_error():
    errors = [item for name in common.__all__ if isinstance(item := getattr(common, name), type)]
    errors = [item for item in errors if issubclass(item, Exception)]
    assert len(errors) == 16
    assert all(issubclass(error, PredbnError) for error in errors)
    assert issubclass(PredbnError, ValueError)
    assert all(error.__doc__ for error in errors)


def test_a_missing_measurement_is_an_error_of_the_paper():
    assert issubclass(NotMeasured, PaperError)


def test_the_package_offers_the_base_class():
    assert predbn.PredbnError is PredbnError
    assert issubclass(predbn.AdaptationError, PredbnError)
