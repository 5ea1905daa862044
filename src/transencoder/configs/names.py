"""The allowed name that was meant, for error messages."""

import difflib
import re
from collections.abc import Sequence


def nearest(name: str, allowed: Sequence[str]) -> str:
    """Return the allowed name that is most like `name`, or that its initials stand for."""
    short_for = next((each for each in allowed if _initials(each) == name.lstrip("-")), None)
    if short_for is not None:
        return short_for
    matches = difflib.get_close_matches(re.sub(r"[-_]", "", name), [re.sub(r"[-_]", "", a) for a in allowed], 1, 0.0)
    return next(a for a in allowed if re.sub(r"[-_]", "", a) == matches[0])


def _initials(name: str) -> str | None:
    """Turn `bi.learning_rate` or `--bi.learning-rate` into `bi.lr`; None for a single word."""
    parent, dot, last = name.lstrip("-").rpartition(".")
    words = re.split(r"[-_]", last)
    return parent + dot + "".join(word[:1] for word in words) if len(words) > 1 else None
