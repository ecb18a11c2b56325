"""A relaxation that a plan may choose: what it sends, how often, what it keeps."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from relaxjax.compression import COMPRESSORS, Compressor
from relaxjax.plan._messages import Messages
from relaxjax.plan._model import Model


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A relaxation that a plan may choose.

    Attributes:
      relaxation: its name, as everywhere.
      messages: of one exchange.
      tx: the line of code.
      every: steps from one exchange to the next.
      kept: floats for each param that it keeps besides the optimizer.
      compressor: as names spell it, or "".
      options: beyond the name, as `relaxjax train` has them.
      axes: how many axes it needs: 2 are hosts and their workers.
      anywhere: whether it needs one axis and takes two.
      why: in one sentence, what it does about the network.
      fits: whether it does anything for a model.
    """

    relaxation: str
    messages: Messages
    tx: str
    why: str
    every: int = 1
    kept: float = 0.0
    compressor: str = ""
    options: Mapping[str, float] = field(default_factory=dict)
    axes: int = 1
    anywhere: bool = False
    fits: Callable[[Model], bool] = lambda _: True

    @property
    def label(self) -> str:
        """The name and the options."""
        options = "".join(f" {k}={v:g}" for k, v in self.options.items())
        return self.relaxation + options


@functools.cache
def compressor_named(name: str) -> Compressor:
    """A compressor, one of each, so that its payloads are looked at once.

    Args:
      name: of the compressor.
    """
    return COMPRESSORS[name]()
