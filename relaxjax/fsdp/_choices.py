"""How weights and gradients travel, as plain data; what does not fit is refused."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from relaxjax._core._axis import AxisName
from relaxjax._core._sending_order import check_bucket_bytes
from relaxjax.compression import Compressor, require_compressor

# Feedbacks that hand on what has arrived. Others correct an estimate of the whole mean
# gradient, or a momentum of it, and a worker has a slice of it alone.
SCATTERED = ("none", "error_feedback", "loco")


class Choices(NamedTuple):
    """Arguments of `relaxjax.fsdp.gathered`.

    Attributes:
      axes: axes that the params are sharded over, outermost first.
      weights: the compressor of gathers; None: weights travel as they are.
      gradients: the compressor of scatters, with its feedback; None likewise.
      across: that of scatters over outer axes; None: `gradients`.
      secondary: the inner axis, if the backward pass gathers from a copy inside of it.
      difference: whether gathers send the change since the last one.
      reshard: whether the backward pass gathers again.
      order: leaf names in the order of gathers, or None.
      bucket_bytes: most bytes of whole leaves that travel together.
      seed: seed of random compressors.
    """

    axes: tuple[str, ...]
    weights: Compressor | None
    gradients: Compressor | None
    across: Compressor | None
    secondary: str | None
    difference: bool
    reshard: bool
    order: Iterable[str] | None
    bucket_bytes: int
    seed: int

    @property
    def random(self) -> bool:
        """Whether a compressor draws at random."""
        codes = self.weights, self.gradients, self.across
        return any(c is not None and c.random for c in codes)

    @property
    def fed_back(self) -> bool:
        """Whether what scatters lose comes back."""
        return self.gradients is not None and self.gradients.feedback.name != "none"

    @property
    def stateful(self) -> bool:
        """Whether something is kept from step to step."""
        return self.random or self.fed_back or self.difference

    def checked(self, caller: str, axis_name: AxisName) -> "Choices":
        """The same, resolved; each error names an argument and its remedy."""
        axes, secondary = self.axes, self.secondary
        weights, gradients, across = self.weights, self.gradients, self.across
        _check_compressors(caller, weights, gradients, across)
        if across is not None and (len(axes) < 2 or gradients is None):
            raise ValueError(
                f"{caller}: across={across.name} with axis_name={axis_name!r} and "
                f"gradients={gradients and gradients.name}: it is for the outer of two "
                "axes or more, where gradients= is for the inner one; give both, as in "
                "axis_name=('host', 'device'), or leave it out"
            )
        if secondary is not None and (len(axes) < 2 or secondary != axes[-1]):
            raise ValueError(
                f"{caller}: secondary={secondary!r} with axis_name={axis_name!r}: the "
                "second copy lies inside the inner of two axes or more, and is named "
                "by it, as in axis_name=('host', 'device'), secondary='device'"
            )
        if self.difference and weights is None:
            raise ValueError(
                f"{caller}: difference=True without weights=: differences are sent in "
                "codes, and nothing is lost without them; give weights=, such as "
                "compression.quantize(4, block_size=2048)"
            )
        if self.difference and (self.reshard or secondary is not None):
            raise ValueError(
                f"{caller}: difference=True keeps what was last communicated, whole, "
                "on every worker, so that the backward pass has nothing to gather: "
                "leave out secondary= and reshard_after_forward="
            )
        return self._replace(
            reshard=self.reshard or secondary is not None,
            order=None if self.order is None else tuple(self.order),
            bucket_bytes=check_bucket_bytes(self.bucket_bytes),
        )


def _check_compressors(caller: str, weights: Any, gradients: Any, across: Any) -> None:
    given = {"weights": weights, "gradients": gradients, "across": across}
    for name, compressor in given.items():
        require_compressor(caller, name, compressor)
    if weights is not None and weights.feedback.name != "none":
        raise ValueError(
            f"{caller}: weights={weights.name} with {weights.feedback.name}: weights "
            "are not added up over steps, so that what is lost does not come back by "
            "feedback. Give the bare compressor, and difference=True to send changes"
        )
    if across is not None and across.feedback.name != "none":
        raise ValueError(
            f"{caller}: across={across.name} with {across.feedback.name}: feedback "
            "around gradients= brings back what is lost on all axes; give the bare "
            "compressor here"
        )
    if gradients is not None and gradients.feedback.name not in SCATTERED:
        raise ValueError(
            f"{caller}: gradients={gradients.name} with {gradients.feedback.name}: it "
            "corrects an estimate or a momentum of the whole mean gradient, of which a "
            "worker receives a slice. Use compression.error_feedback, "
            "compression.loco, or no feedback"
        )
