"""Logs as JSON, one object per line, on stderr."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone

_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "color_message", "taskName", "_ray_timestamp_ns"}
"""Attributes of every log record; others were given as `extra`."""


class JsonFormatter(logging.Formatter):
    """Time, level, event, and the `extra` of the event."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _STANDARD},
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def log_as_json(level: str) -> None:
    """Write the logs of the server, of uvicorn and Python's warnings as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.captureWarnings(True)
    for name, logger_level in (("predbn.serving", level.upper()), ("uvicorn", "WARNING"), ("py.warnings", "WARNING")):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logger_level)
