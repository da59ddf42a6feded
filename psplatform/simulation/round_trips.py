"""A trace's pulls and pushes added to its gradients: the times of whole round trips."""

from __future__ import annotations

import csv
import io
from typing import Final

from psplatform.errors import ConfigurationError

_PARTS: Final = ("pull_s", "push_s")


def with_transfers(text: str, name: str) -> str:
    """Return a trace's CSV text with the seconds of each pull and push added to those of its gradient.

    Parameters
    ----------
    name
        What errors call the text.

    Raises
    ------
    ConfigurationError
        If the trace does not have these columns, or one of their values is no number; it names the line.
    """
    rows = csv.DictReader(text.removeprefix("\ufeff").splitlines())
    columns = rows.fieldnames or ()
    if "seconds" not in columns:
        return text  # the reader of the trace says what is wrong with it
    missing = [column for column in _PARTS if column not in columns]
    if missing:
        raise ConfigurationError(
            f"trace {name} has no column {' or '.join(missing)}, so it is of gradients only; give it as compute"
        )
    whole = io.StringIO()
    writer = csv.writer(whole)
    writer.writerow(["slot", "sequence", "seconds"])
    for row in rows:
        try:
            seconds = sum(float(row[column] or 0.0) for column in ("seconds", *_PARTS))
        except (TypeError, ValueError):
            line = rows.line_num
            raise ConfigurationError(f"trace {name}, line {line}: a time is no number; write it like 0.05") from None
        writer.writerow([row.get("slot"), row.get("sequence"), repr(seconds)])
    return whole.getvalue()
