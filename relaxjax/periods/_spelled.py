"""Periods as text, for command lines: the name of a schedule, a colon, its numbers.

    16                                     a number of steps
    qsr:alpha=0.0175,least=4
    qsr:peaks=2                            alpha is twice the highest rate
    table:4,4,7,9                          one after the other
    table:0=4,1000=16                      from these steps on
    post_local:step=500,sync_every=16
    stages:steps=500,sync_every=2

`qsr` reads the learning rate of the run, ends with it, and warms up until the rate is
highest, unless `warm_up` says otherwise.
"""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from relaxjax._core.foreign._words import number_of
from relaxjax.periods._calendar import LONGEST, Period, Schedule
from relaxjax.periods._qsr import qsr
from relaxjax.periods._table import post_local, stages, table

_MADE: dict[str, Callable[..., Schedule]] = {
    "qsr": qsr,
    "table": table,
    "post_local": post_local,
    "stages": stages,
}
EXAMPLE = "qsr:alpha=0.0175 or table:0=4,1000=16"


def spelled(text: str, learning_rate: optax.ScalarOrSchedule, steps: int) -> Period:
    """The period that a text names, for a run of this rate over so many steps.

    Raises:
      ValueError: an unknown schedule, a missing argument, a word that is not a number,
        or a value that the schedule refuses.
    """
    if text.isdigit():
        return int(text)
    name, _, rest = text.partition(":")
    if name not in _MADE:
        raise ValueError(
            f"periods {text!r}: there is no schedule {name!r}; there is "
            f"{', '.join(_MADE)}, as in {EXAMPLE}"
        )
    words = [word for word in rest.split(",") if word]
    if name == "table":
        return table([_row(text, word) for word in words])
    numbers = dict(_pair(text, word) for word in words)
    if name == "qsr":
        numbers = _of_run(learning_rate, min(steps, LONGEST), numbers)
    known = inspect.signature(_MADE[name]).parameters
    for key in numbers.keys() - known.keys():
        own = ", ".join(key for key in known if key != "learning_rate")
        raise ValueError(f"periods {text!r}: {name} has no {key!r}; it has {own}")
    for key, parameter in known.items():
        if parameter.default is parameter.empty and key not in numbers:
            raise ValueError(f"periods {text!r}: {name} needs {key}, as in {key}=2")
    return _MADE[name](**numbers)


def _of_run(rate: Any, steps: int, numbers: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `qsr`, with those that the run gives."""
    given = {"learning_rate": rate, "steps": steps, **numbers}
    rates = np.asarray(jax.vmap(rate)(jnp.arange(steps)) if callable(rate) else [rate])
    given.setdefault("warm_up", int(rates.argmax()))
    if "peaks" in given:
        given["alpha"] = given.pop("peaks") * float(rates.max())
    return given


def _row(text: str, word: str) -> Any:
    start, equals, period = word.partition("=")
    if not equals:
        return _number(text, word)
    return _number(text, start), _number(text, period)


def _pair(text: str, word: str) -> tuple[str, Any]:
    key, _, value = word.partition("=")
    return key, _number(text, value)


def _number(text: str, word: str) -> int | float:
    number = number_of(word)
    if number is None:
        raise ValueError(
            f"periods {text!r}: {word!r} must be a number, as in {EXAMPLE}"
        )
    return number
