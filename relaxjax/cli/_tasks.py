"""The table of tasks; importing it imports their data libraries."""

from collections.abc import Callable, Mapping

from relaxjax.cli._chars import chars
from relaxjax.cli._digits import digits
from relaxjax.cli._task import Task

TASKS: Mapping[str, Callable[[int], Task]] = {"digits": digits, "chars": chars}
