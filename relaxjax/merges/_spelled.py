"""Rules as text, for command lines: the name of a rule, a colon, its numbers.

    mean, rda                     the words of `merge=`
    clipped:by=all,cap=3
    trimmed:b=1
    rda:length=median             the rule, and not the word
    nearest:f=1,rule=median

Cost: nothing is sent.
"""

from typing import Any

from relaxjax._core.foreign._words import number_of
from relaxjax.merges._rule import Rule
from relaxjax.merges._rules import RULES, rule_of

WORDS = ("mean", "rda")
EXAMPLE = "clipped or trimmed:b=1"


def spelled(text: str) -> str | Rule:
    """The rule that a text names, or its word.

    Raises:
      ValueError: there is no such rule, or it does not take these numbers.
    """
    name, _, rest = text.partition(":")
    if text in WORDS:
        return text
    if name not in RULES:
        raise ValueError(
            f"merge {text!r}: there is no rule {name!r}; there is "
            f"{', '.join(dict.fromkeys((*WORDS, *RULES)))}, as in {EXAMPLE}"
        )
    said = dict(_pair(word) for word in rest.split(",") if word)
    try:
        return rule_of({"merge": name, **said})
    except ValueError as error:
        raise ValueError(f"merge {text!r}: {error}") from error


def _pair(word: str) -> tuple[str, Any]:
    """A knob and its value: a number, a word, None, or a rule without numbers."""
    key, _, value = word.partition("=")
    if key == "rule":
        return key, {"merge": value}
    if value == "None":
        return key, None
    number = number_of(value)
    return key, value if number is None else number
