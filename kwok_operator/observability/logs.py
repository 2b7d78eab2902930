"""The form of log lines: text for people, or one JSON object per line.

Logs go to standard error. Of kopf's own logs only problems are kept. A warning about something that
may end by itself has `extra={"trouble": NAME}`, and the line about its end has `extra={"over":
NAME}`, so readers of the JSON see which troubles last.
"""

import json
import logging
import sys
from datetime import UTC, datetime


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object: time, level, logger, message; if the record has them,
    also `trouble` (the name of a problem that begins), `over` (that of one that ends) and
    traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {key: getattr(record, key) for key in ("trouble", "over") if hasattr(record, key)}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure(*, log_format: str, level: str) -> None:
    """Sets up the root logger for the whole process."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("kopf", "kubernetes_asyncio", "asyncio", "aiohttp.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # kopf logs each attempt of each request while the API server is away. Our own watch logs the
    # outage once, and once more when it is over. operator/handlers.py logs why kopf ended.
    reactor = [f"_core.reactor.{part}" for part in ("orchestration", "queueing", "running")]
    for name in ("_cogs.clients", "activities", *reactor):
        logging.getLogger(f"kopf.{name}").setLevel(logging.CRITICAL)
