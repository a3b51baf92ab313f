"""The one exception for what a user wrote and cannot mean: shown as one message with the mend, exit status 2, no
traceback.
"""

import difflib
from collections.abc import Iterable


class Mistake(ValueError):
    """A user's mistake. The message begins with the thing at fault, mostly a gin binding ('bert.num_heads: ...'), and
    ends with the mend.
    """


def nearest(name: str, names: Iterable[str], count: int = 3) -> str:
    """'Nearest: a, b.' for the names most like `name`, or '' when none is like it: the tail of a message about an
    unknown name.
    """
    found = difflib.get_close_matches(name, list(names), n=count, cutoff=0.5)
    return f"Nearest: {', '.join(map(repr, found))}." if found else ""
