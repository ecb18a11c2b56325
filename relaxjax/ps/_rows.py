"""The row of the parameter server."""

import functools
from typing import Any

import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._relaxation import Relaxation, Sends, Training
from relaxjax.compression import Compressor
from relaxjax.gradients import label_leaves
from relaxjax.ps._parameter_server import parameter_server


def _build_parameter_server(
    axis_name: AxisName,
    training: Training,
    compressor: Compressor | None = None,
    **parts: Any,
) -> optax.GradientTransformationExtraArgs:
    """With an order, each leaf travels by itself, and all of them in codes if any.

    Without one, biases and norms travel as they are.
    """
    servers = functools.partial(parameter_server, training.optimizer, axis_name)
    if training.order is not None:
        parts = {"order": training.order, "bucket_bytes": 1, **parts}
        return servers(compressor=compressor, **parts)
    if compressor is None:
        return servers(**parts)
    matrix, vector = servers(compressor=compressor, **parts), servers(**parts)
    return optax.partition({"matrix": matrix, "vector": vector}, label_leaves)


ROWS = [
    Relaxation(
        name="parameter_server",
        summary="the optimizer runs at servers, each with a slice of all",
        build=_build_parameter_server,
        compressors=True,
        options=frozenset(
            {"bucket_bytes", "compensation", "seed", "servers", "staleness"}
        ),
        ordered=True,
        sends=Sends(
            kind="gradients",
            line="relaxjax.parameter_server(optimizer, {args})",
            why="each worker is the server of a slice, "
            "and holds its optimizer state alone",
            algorithm="two_shot",
        ),
    ),
]
