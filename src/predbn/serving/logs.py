"""Logs for programs: one JSON object per line on the standard error output."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone

_USUAL = set(vars(logging.LogRecord("", 0, "", 0, "", None, None))) | {
    "message",
    "asctime",
    "color_message",
    "taskName",
    "_ray_timestamp_ns",
}
"""What every log record has; the rest is what was given as `extra`."""


class JsonFormatter(logging.Formatter):
    """Time, level, event, and whatever belongs to the event."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _USUAL},
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def log_as_json(level: str) -> None:
    """Write the logs of the server as JSON, and so warnings and errors of uvicorn and Python's warnings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.captureWarnings(True)
    for name, own_level in (("predbn.serving", level.upper()), ("uvicorn", "WARNING"), ("py.warnings", "WARNING")):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(own_level)
