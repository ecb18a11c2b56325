"""The program of a GPU for params in host memory, compiled without a GPU.

The described devices of `gpu_mesh` have no memories, so JAX drops memory kinds on the
way to them. A function that is exported for "cuda" from arrays on CPU keeps the copies
that it asks for; where its arguments and results lie is then written into the module.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.extend.mlir import ir
from jax.sharding import NamedSharding, PartitionSpec

from benchmarks.programs.gpu_program import gpu_mesh

_PLACEMENT = "annotate_device_placement"  # which jax.export does not promise to keep


def host_program_text(
    fn: Any, *args: Any, options: Mapping[str, str | bool] | None = None
) -> str:
    """Compiles for one H100 and returns the optimized module.

    Args:
      fn: what `jax.jit` returned.
      *args: its arguments, as arrays on CPU, some of them in host memory.
      options: XLA's flags, by name.

    Returns:
      The text of the scheduled HLO; host memory is `S(5)` in it.

    Raises:
      Unavailable: as `gpu_mesh`.
    """
    place = NamedSharding(gpu_mesh((1,)), PartitionSpec())
    lax = [jax.export.DisabledSafetyCheck.custom_call(_PLACEMENT)]
    exported = jax.export.export(fn, platforms=["cuda"], disabled_checks=lax)(*args)
    shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), args
    )
    lowered = jax.jit(exported.call, keep_unused=True).lower(*shapes)
    traced = jax.make_jaxpr(fn)(*args)
    _place(lowered.compiler_ir("stablehlo"), traced.in_avals, traced.out_avals)
    text = lowered.compile(compiler_options=dict(options or {})).as_text()
    assert text is not None
    return text


def _place(module: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Says which arguments and results of the main function lie in host memory."""
    with module.context:
        name = ir.StringAttr.get("main")
        parts = [part.operation.attributes for part in module.body.operations]
        (attributes,) = [part for part in parts if part["sym_name"] == name]
        for key, avals in (("arg_attrs", inputs), ("res_attrs", outputs)):
            each = zip(attributes[key], avals, strict=True)
            attributes[key] = ir.ArrayAttr.get([_placed(old, x) for old, x in each])


def _placed(old: Any, aval: Any) -> Any:
    attributes = {entry.name: entry.attr for entry in old}
    if aval.memory_space == jax.memory.Space.Host:
        attributes["mhlo.memory_kind"] = ir.StringAttr.get("pinned_host")
    return ir.DictAttr.get(attributes)
