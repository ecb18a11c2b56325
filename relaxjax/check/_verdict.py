"""What is found of a law: whether it holds, and the counterexample if it does not."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

_FEW = 8  # elements that are shown


class Counterexample(NamedTuple):
    """The smallest case found in which a law fails.

    Attributes:
      where: what leads to the case, by name: input, size, seed, step, worker, element.
      expected: what the law says, in words and numbers.
      seen: what there was instead.
    """

    where: Mapping[str, Any]
    expected: str
    seen: str

    def __str__(self) -> str:
        """One line for tables."""
        where = ", ".join(f"{key} {value}" for key, value in self.where.items())
        where = f"{where}: " if where else ""
        return f"{where}expected {self.expected}, seen {self.seen}"


class Verdict(NamedTuple):
    """What was found of one law.

    Attributes:
      law: its name, a few words.
      holds: whether it holds; None where nothing was claimed, and this only reports.
      found: what was found, in words and numbers.
      counterexample: a case in which the law fails, or None.
    """

    law: str
    holds: bool | None
    found: str
    counterexample: Counterexample | None = None


def refuted(
    law: str, found: str, where: Mapping[str, Any], expected: Any, seen: Any
) -> Verdict:
    """The verdict on a law that fails; what is no text is spelled as numbers."""
    texts = (x if isinstance(x, str) else spelled(x) for x in (expected, seen))
    return Verdict(law, False, found, Counterexample(where, *texts))


def unclaimed(failed: Verdict, words: str) -> Verdict:
    """What is reported of a law that fails where nobody has claimed it."""
    return Verdict(failed.law, None, f"{words}: {failed.counterexample}")


def verdict_of(law: str, check: Callable[[], Verdict]) -> Verdict:
    """The verdict of a check; an error of the user's code, which it calls, refutes."""
    try:
        return check()
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        lines = str(error).strip().splitlines()
        seen = f"{type(error).__name__}: {lines[0] if lines else ''}"
        return refuted(law, "it raised", {}, "a result", seen)


def farthest(x: np.ndarray, y: np.ndarray) -> tuple[tuple[int, ...], float]:
    """Where two arrays are farthest apart, and how far; a NaN is infinitely far."""
    off = np.nan_to_num(np.abs(x - y), nan=np.inf)
    place = tuple(map(int, np.unravel_index(off.argmax(), off.shape)))
    return place, float(off[place])


def spelled(values: Any) -> str:
    """The first few numbers of an array, as text."""
    flat = np.ravel(np.asarray(values))
    shown = " ".join(f"{x:.6g}" for x in flat[:_FEW])
    return f"[{shown}{' ..' if flat.size > _FEW else ''}]" if flat.size != 1 else shown


def strict_json(value: Any) -> Any:
    """The value in JSON's own types, with None for numbers that are not finite."""
    if isinstance(value, dict):
        return {str(key): strict_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict_json(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
