"""Which relaxation has a level that a controller may decide, by its row of the table.

    periods     an option that says when workers meet
    ranks       `highest`, the columns that a state holds
    codes       a compressor

Cost: none.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from relaxjax._core._relaxation import Relaxation
from relaxjax._core.foreign._spelling import listed
from relaxjax.controllers._spelled import DECIDED, is_controller


def refuse_controllers(name: str, options: Mapping[str, Any]) -> None:
    """ValueError for a controller where nothing is asked while training."""
    for option in DECIDED:
        if is_controller(option, text := options.get(option)):
            form = "schedule" if option == "periods" else "table"
            raise ValueError(
                f"relaxation {name!r}: {option}={text} decides in a run of relaxjax "
                f"train or compare; here give a {form}, or recorded:PATH of its "
                "decisions"
            )


def require_decidable(
    row: Relaxation,
    rows: Iterable[Relaxation],
    option: str,
    text: str,
    given: Mapping[str, Any],
) -> None:
    """ValueError where a row has no such level, or `given` states it besides.

    `rows` are all of the table; `option` is "ranks" or "codes".
    """
    what, noun = {
        "ranks": ("highest", "rank that may change"),
        "codes": ("compressor", "code"),
    }[option]
    if not _has(row, option):
        able = [x.name for x in rows if _has(x, option)]
        raise ValueError(
            f"relaxation {row.name!r} has no {noun}, and takes no {option}={text}; "
            f"{listed(able)} {'do' if len(able) > 1 else 'does'}"
        )
    if stated := {"rank", what} & given.keys():
        raise ValueError(
            f"relaxation {row.name!r}: {option}={text} and {min(stated)}= both say the "
            f"{noun.split()[0]}: leave one out"
        )


def require_sums(
    row: Relaxation, rows: Iterable[Relaxation], option: str, text: str
) -> None:
    """ValueError where a controller would read sums that are not common, or none."""

    def is_read(row: Relaxation) -> bool:
        common = not row.apart and "freeze_step" not in row.options
        return common and _has(row, option)

    if not is_read(row):
        able = [x.name for x in rows if is_read(x)]
        raise ValueError(
            f"relaxation {row.name!r} takes no {option}={text}: a controller reads the "
            "sums of updates that are common to the workers, and of these its "
            f"optimizer has none; {listed(able)} {'do' if len(able) > 1 else 'does'}"
        )


def _has(row: Relaxation, option: str) -> bool:
    return row.compressors if option == "codes" else "highest" in row.options
