"""All errors of the package have one base class, which the command line catches."""

import predbn
from predbn import common
from predbn.common import NotMeasured, PaperError, PredbnError


def test_every_error_is_a_predbn_error_and_a_value_error():
    errors = [item for name in common.__all__ if isinstance(item := getattr(common, name), type)]
    errors = [predbn.AdaptationError, *(item for item in errors if issubclass(item, Exception))]
    assert all(issubclass(error, PredbnError) and error.__doc__ for error in errors)
    assert issubclass(PredbnError, ValueError)
    assert issubclass(NotMeasured, PaperError)
    assert predbn.PredbnError is PredbnError
