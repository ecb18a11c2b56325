"""What relaxations cost over a link that is some times as fast as was said.

    cost(r, f) = ((H_r - 1) c + T(r, f, c) + e) / (H_r worth_r)

T is the predicted seconds of a step that sends (`relaxjax.plan._predict`), e by how
much it is wrong, c the seconds of a step that does not send, H the period, and a worth
is in steps of plain all-reduce. A step that sends is not shorter than c.

Cost: one prediction.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from relaxjax.plan._model import Model
from relaxjax.plan._network import Network
from relaxjax.plan._predict import predict
from relaxjax.plan._ranking import Row

SLOWEST, FASTEST = 1e-4, 1e4  # times as fast as was said
_HALVINGS = 40


@dataclass(frozen=True)
class Costs:
    """Rows of a ranking, and what their costs follow from."""

    rows: tuple[Row, ...]
    model: Model
    network: Network
    worth: Mapping[str, float]

    def exchange(self, level: int, f: float, compute: float) -> float:
        """T, the seconds of a step that sends."""
        row, network = self.rows[level], _times(self.network, f)
        each = replace(row.candidate, every=1)
        own = self.model.compute
        model = self.model if compute == own else replace(self.model, compute=compute)
        return predict(each, model, network, row.prediction.bucket_bytes).seconds

    def __call__(
        self, level: int, f: float, compute: float, error: float = 0.0
    ) -> float:
        seconds = max(self.exchange(level, f, compute) + error, compute)
        every, label = self.rows[level].candidate.every, self.rows[level].label
        return ((every - 1) * compute + seconds) / every / self.worth.get(label, 1.0)


def factor(seconds_of: Callable[[float], float], seconds: float) -> float:
    """f, by which a step takes so many seconds; the bound where none does."""
    slow, fast = SLOWEST, FASTEST
    for _ in range(_HALVINGS):
        middle = (slow * fast) ** 0.5
        if seconds_of(middle) > seconds:
            slow = middle
        else:
            fast = middle
    return (slow * fast) ** 0.5


def _times(network: Network, f: float) -> Network:
    """The network with links between hosts that are f times as fast."""
    link = replace(network.link, bandwidth=network.link.bandwidth * f)
    psum = network.psum and replace(network.psum, bandwidth=network.psum.bandwidth * f)
    return replace(network, link=link, psum=psum)
