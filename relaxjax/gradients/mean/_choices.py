"""What `all_reduce` refuses or remarks on, and why."""

from collections.abc import Sequence
from typing import Any

from relaxjax._core._axis import AxisName, axes_of
from relaxjax._core._tree import leaf_names
from relaxjax._core.traced._asked import remark
from relaxjax.collectives import ALGORITHMS, CODED_EXCHANGES, two_axes
from relaxjax.compression import NO_FEEDBACK, Compressor, require_compressor
from relaxjax.merges import Rule

OPS = ("mean", "sum", "adasum")
CHOICES = ("auto", *ALGORITHMS)
TWO_AXES = tuple(name for name, row in ALGORITHMS.items() if row.two_axes)


def checked_algorithm(
    axis_name: AxisName,
    algorithm: str,
    compressor: Compressor | None,
    op: str | Rule,
    specs: Any,
) -> str:
    """The algorithm, with "auto" resolved, or an error for what cannot be."""
    axes_of(axis_name)
    _check_choice("algorithm", algorithm, CHOICES)
    require_compressor("all_reduce", "compressor", compressor)
    if isinstance(op, Rule):
        from relaxjax.gradients.mean._rule_choices import algorithm_of

        algorithm = algorithm_of(axis_name, algorithm, compressor, op)
    else:
        _check_choice("op", op, (*OPS, "a rule of relaxjax.merges"))
    if op == "adasum":
        _check_adasum(algorithm, compressor, specs)
    if algorithm == "auto":
        algorithm = "psum" if compressor is None else compressor.algorithm
    if compressor is not None:
        _check_compressor(algorithm, compressor)
    elif ALGORITHMS[algorithm].exact is None:
        raise ValueError(
            f"all_reduce: algorithm={algorithm!r} with compressor=None: it is for "
            "payloads only; pass compressor=, or use 'hierarchical', which sends the "
            "same chunks as they are"
        )
    if algorithm in TWO_AXES:
        two_axes(axis_name, f"all_reduce with {algorithm=}")
    return algorithm


def require_whole_tensors(updates: Any, layouts: Sequence[frozenset[str]]) -> None:
    """Refuses Adasum of leaves of which a device has a part."""
    for name, axes in zip(leaf_names(updates), layouts, strict=True):
        if axes:
            raise ValueError(
                f"op='adasum': leaf {name!r} is sharded over {sorted(axes)}, and "
                "Adasum's coefficients belong to whole tensors, of which a device has "
                "a part; use op='mean'"
            )


def _check_choice(name: str, value: str, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(valid)}")


def _check_adasum(algorithm: str, compressor: Compressor | None, specs: Any) -> None:
    if specs is not None:
        raise ValueError(
            "op='adasum' takes no specs=: its coefficients belong to whole tensors, of "
            "which a device has a shard; use op='mean'"
        )
    if algorithm != "auto":
        raise ValueError(
            f"op='adasum' with algorithm={algorithm!r}: Adasum is not a sum, and has "
            "an exchange of its own, leaf by leaf; leave algorithm at 'auto'"
        )
    if compressor is not None:
        raise ValueError(
            f"op='adasum' with compressor={compressor.name}: Adasum's coefficients are "
            "of whole tensors, and its exchange carries no payload; use op='mean'"
        )


def _check_compressor(algorithm: str, compressor: Compressor) -> None:
    if algorithm not in CODED_EXCHANGES:
        raise ValueError(
            f"all_reduce: algorithm={algorithm!r} carries no compressor: it would "
            "encode anew at each level, for no fewer bytes than 'two_shot'; use one of "
            + ", ".join(CODED_EXCHANGES)
        )
    if algorithm == "psum" and not compressor.law.linear:
        raise ValueError(
            "all_reduce: algorithm='psum' adds payloads, and those of "
            f"{compressor.name} cannot be added before they are decoded; use "
            "'two_shot' or 'one_shot', or a linear compressor such as random_k"
        )


def remark_on_loss(caller: str, compressor: Compressor | None) -> None:
    """Remarks on a compressor that drops most numbers, and nothing brings them back."""
    if compressor is None or compressor.feedback is not NO_FEEDBACK:
        return
    if compressor.algorithm == "one_shot" and compressor.law.omega is None:
        remark(
            f"{caller} sends some of the numbers alone, by {compressor.name} without "
            "feedback: what is left out is lost in each step, and small gradients "
            "never arrive. Wrap it: compressor=compression.error_feedback(...)"
        )
