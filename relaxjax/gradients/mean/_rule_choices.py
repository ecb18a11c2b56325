"""What `all_reduce(op=rule)` refuses, and why."""

from relaxjax._core._axis import AxisName, axes_of
from relaxjax.compression import NO_FEEDBACK, Compressor
from relaxjax.merges import Rule, looks_at


def algorithm_of(
    axis_name: AxisName, algorithm: str, compressor: Compressor | None, rule: Rule
) -> str:
    """The algorithm; an error where nobody would see each worker's values."""
    if looks_at(rule) == "lengths":
        return algorithm
    said = f"all_reduce: op={rule!r}"
    if algorithm not in ("auto", "two_shot"):
        raise ValueError(
            f"{said} with algorithm={algorithm!r}: it needs a chunk of every worker at "
            "one place, which is 'two_shot'; leave algorithm at 'auto', or take "
            "merges.clipped(), which goes with every algorithm"
        )
    if compressor is not None:
        _check_code(f"{said} with compressor={compressor.name}", axis_name, compressor)
    return "two_shot"


def _check_code(said: str, axis_name: AxisName, compressor: Compressor) -> None:
    if compressor.algorithm != "two_shot":
        raise ValueError(
            f"{said}: where most workers send no value of a coordinate, or a sum "
            "alone, its median is 0 or unknown, and training stalls without a word; "
            "take a dense code such as quantize(8), or merges.clipped()"
        )
    if compressor.feedback is not NO_FEEDBACK:
        raise ValueError(
            f"{said}: feedback makes up for losses in a mean, and a merge by rank or "
            "distance passes no worker's correction on; take the bare code, or "
            "merges.clipped()"
        )
    if len(axes_of(axis_name)) > 1:
        raise ValueError(
            f"{said} over {axis_name!r}: a code would be decoded and encoded along "
            "each axis before anything is merged; use one axis, or no code"
        )
