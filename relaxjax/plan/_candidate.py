"""A relaxation that a plan may choose: what it sends and keeps, and the line to paste.

`BUCKET` stands in a line where the bucket size is stated, if it is not the default, and
`MERGE` where a rule of `relaxjax.merges` is, in the lines of those that take one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from relaxjax._core._relaxation import Relaxation
from relaxjax.merges import Rule
from relaxjax.periods import Schedule
from relaxjax.plan._messages import Messages
from relaxjax.plan._model import Model


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A relaxation that a plan may choose.

    Attributes:
      relaxation: its name on the command line.
      messages: what one exchange sends.
      tx: the line of code that makes it.
      why: what it does about the network, in a phrase.
      every: steps from one exchange to the next; a mean, if they are not the same.
      keeps: floats it keeps for each parameter, besides the optimizer.
      compressor: its compressor and feedback, as names spell them, or "".
      options: options beyond the name, for `relaxjax train`.
      axes: number of axes it needs: 2 are hosts and their workers.
      anywhere: whether it needs one axis and also runs over two.
      fits: whether it does anything for a model.
      buckets: in which directions another size of a bucket may be worth something:
        "smaller" where messages can hide behind the backward pass, "larger" where there
        are buckets at all.
      merge: the rule of `relaxjax.merges` by which contributions merge; None: a mean.
      schedule: when models meet, where that is not every so many steps.
    """

    relaxation: str
    messages: Messages
    tx: str
    why: str
    every: float = 1
    keeps: float = 0.0
    compressor: str = ""
    options: Mapping[str, float] = field(default_factory=dict)
    axes: int = 1
    anywhere: bool = False
    fits: Callable[[Model], bool] = lambda _: True
    buckets: tuple[str, ...] = ("smaller", "larger")
    merge: Rule | None = None
    schedule: Schedule | None = None

    @property
    def label(self) -> str:
        """The name and the options."""
        options = "".join(f" {k}={v:g}" for k, v in self.options.items())
        return self.relaxation + options + " on a schedule" * bool(self.schedule)

    def fits_axes(self, axes: int | None) -> bool:
        """Whether it runs over this number of axes; None is the number it needs."""
        return axes in (None, self.axes) or (axes == 2 and self.anywhere)


BUCKET, MERGE = "{bucket}", "{merge}"
BUCKET_BYTES = 8 * 2**20
WHOLE = 2**32  # bytes of a single bucket at most: elements are counted in int32

_AXES = {1: '"data"', 2: '("host", "device")'}


def line(row: Relaxation, *args: str, axes: int = 1, **keywords: object) -> str:
    """The line that makes a relaxation with arguments that are source text.

    A row without such a line gets a comment on the two other ways to run it.
    """
    if not row.sends.line:
        build = f"relaxjax.plan.transformation(row, {_AXES[axes]}, optimizer, workers)"
        return f"# relaxjax train --relaxation {row.name}; or tx = {build}"
    rest = MERGE if "merge" in row.options else ""
    rest += BUCKET if "bucket_bytes" in row.options else ""
    return "tx = " + row.sends.line.replace(
        "{args}", _joined(axes, args, keywords) + rest
    )


def in_codes(row: Relaxation, *, axes: int = 1, **keywords: object) -> str:
    """The line of an all-reduce in codes, but for biases and scales."""
    exact = line(row, axes=axes, **keywords)
    return exact.replace("relaxjax.all_reduce(", "relaxjax.compress_matrices(")


def models_in_codes(row: Relaxation, every: int, compressor: str) -> str:
    """The line of models that meet in codes, but for biases and scales."""
    own = f'relaxjax.compress_matrices("data", {compressor}, algorithm="two_shot"'
    whole = line(row, str(every), reducer="{own}")
    parts = (part for part in (MERGE, BUCKET) if part in whole)
    return (
        whole.replace(MERGE, "")
        .replace(BUCKET, "")
        .replace("{own}", f"{own}{''.join(parts)})")
    )


def _joined(axes: int, args: tuple[str, ...], keywords: dict[str, object]) -> str:
    named = (f"{key}={value}" for key, value in keywords.items())
    return ", ".join([_AXES[axes], *args, *named])


def graph(topology: str, peers: int) -> str:
    """The expression that makes a topology."""
    size = str(peers)
    if topology == "torus":
        side = next(a for a in range(int(peers**0.5), 0, -1) if peers % a == 0)
        size = f"({side}, {peers // side})"
    return f"relaxjax.topology.{topology}({size})"


def sized(text: str, bucket_bytes: int) -> str:
    """The line with its bucket size; the default is left out, and a rule as well."""
    usual = bucket_bytes == BUCKET_BYTES
    text = text.replace(MERGE, "")
    return text.replace(BUCKET, "" if usual else f", bucket_bytes={bucket_bytes}")
