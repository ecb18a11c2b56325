"""A rule as plain data: a name and its numbers, which say the same in any process.

    nearest(1, median())  =  Rule("nearest", (("f", 1), ("rule", Rule("median"))))
    in JSON                  {"merge": "nearest", "f": 1, "rule": {"merge": "median"}}

What a name does is in a table (`relaxjax.merges._rules`), so that a rule can be
compared, be a key, be written into a run's `run.json`, and be read there again.
"""

import sys
from dataclasses import dataclass
from numbers import Real
from typing import Any

from relaxjax._core._checks import check_type, require_known, require_whole

_STEPS = 1000  # of iterations; a run.json of others may ask for any number


@dataclass(frozen=True)
class Rule:
    """How the contributions of several workers become one.

    Make one with a function of `relaxjax.merges`, such as `relaxjax.merges.median()`.

    Attributes:
      name: the function's name.
      knobs: its arguments by name: numbers, words, None or another rule.

    Example:
      >>> from relaxjax import merges
      >>> merges.nearest(1, merges.trimmed(1))
      nearest(f=1, rule=trimmed(b=1))
      >>> merges.trimmed(1) == merges.trimmed(1)
      True
    """

    name: str
    knobs: tuple[tuple[str, Any], ...] = ()

    def __repr__(self) -> str:
        """The call that makes it."""
        return f"{self.name}({', '.join(f'{key}={x!r}' for key, x in self.knobs)})"

    @property
    def numbers(self) -> dict[str, Any]:
        """The knobs by name."""
        return dict(self.knobs)

    def record(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        said = {k: x.record() if isinstance(x, Rule) else x for k, x in self.knobs}
        return {"merge": self.name, **said}


def require_rule(caller: str, name: str, value: Any) -> None:
    """Refuses anything but a `Rule`."""
    remedy = "make one with relaxjax.merges, such as relaxjax.merges.median()"
    check_type(f"{caller}: {name}", value, Rule, remedy)


def require_number(caller: str, name: str, value: Any, rule: str, least: float) -> None:
    """Refuses what is not a known finite number of at least `least`, or above 0."""
    require_known(caller, name, value)
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not _is_within(value, least):
        raise ValueError(f"{caller}: {name}={value!r} must be {rule}")


def _is_within(value: Any, least: float) -> bool:
    return value > 0 and least <= value <= sys.float_info.max


def require_cap(caller: str, cap: Any) -> float | None:
    """A cap of weights: 1 or more times their median, or None."""
    if cap is None:
        return None
    rule = "1 or more times the median weight, such as 2.0, or None for no cap"
    require_number(caller, "cap", cap, rule, 1)
    return float(cap)


def require_steps(caller: str, steps: Any) -> int:
    """A number of iterations: whole, 1 to 1000."""
    require_whole(caller, "steps", steps)
    if steps > _STEPS:
        raise ValueError(f"{caller}: steps={steps} must be at most {_STEPS}")
    return int(steps)
