"""The line `tx = ...` of a relaxation, as one would write it.

`BUCKET` stands where the size of a bucket is said, if it is not the usual one.
"""

from relaxjax.compression import expression

BUCKET = "{bucket}"

_AXES = {1: '"data"', 2: '("host", "device")'}
OPTIMIZER = "optimizer"


def _chain(*parts: str) -> str:
    return f"tx = optax.chain({', '.join(parts)})"


def all_reduce(
    code: str = "", feedback: str = "", algorithm: str = "", axes: int = 1
) -> str:
    """Before the optimizer."""
    parts = [_AXES[axes]]
    parts += [f"compressor={expression(code, feedback)}"] if code else []
    parts += [f'algorithm="{algorithm}"'] if algorithm else []
    return _chain(f"relaxjax.all_reduce({', '.join(parts)}{BUCKET})", OPTIMIZER)


def partly(code: str, feedback: str, algorithm: str, plain: float) -> str:
    """Before the optimizer, with what is sent first as it is."""
    coded = [_AXES[1], f"compressor={expression(code, feedback)}"]
    coded += [f'algorithm="{algorithm}"']
    each = f"{{False: relaxjax.all_reduce({', '.join(coded)}{BUCKET}), "
    each += f"True: relaxjax.all_reduce({_AXES[1]}{BUCKET})}}"
    which = f"lambda params: relaxjax.schedule.sent_first(params, {plain})"
    return _chain(f"optax.partition({each}, {which})", OPTIMIZER)


def delayed() -> str:
    """An all-reduce of what has waited."""
    return _chain(
        "relaxjax.delay(1)", f'relaxjax.all_reduce("data"{BUCKET})', OPTIMIZER
    )


def parameter_server() -> str:
    """Around the optimizer."""
    return f'tx = relaxjax.parameter_server({OPTIMIZER}, "data"{BUCKET})'


def power_sgd(rank: int, algorithm: str = "", bits: int = 32) -> str:
    """Before the optimizer."""
    parts = ['"data"', f"rank={rank}"]
    parts += [f'algorithm="{algorithm}"'] if algorithm else []
    parts += [f"bits={bits}"] if bits != 32 else []
    return _chain(f"relaxjax.power_sgd({', '.join(parts)})", OPTIMIZER)


def gossip(
    topology: str,
    peers: int,
    *,
    axes: int = 1,
    code: str = "",
    method: str = "gossip",
) -> str:
    """After the optimizer."""
    graph = f"relaxjax.topology.{topology}({_sized(topology, peers)})"
    parts = [_AXES[axes], graph]
    parts += [f"compressor={expression(code)}"] if code else []
    return _chain(OPTIMIZER, f"relaxjax.{method}({', '.join(parts)}{BUCKET})")


def _sized(topology: str, peers: int) -> str:
    if topology != "torus":
        return str(peers)
    side = next(a for a in range(int(peers**0.5), 0, -1) if peers % a == 0)
    return f"({side}, {peers // side})"


def seldom(method: str, every: int, code: str = "", feedback: str = "") -> str:
    """Local steps, with the optimizer before or inside."""
    parts = ['"data"', str(every)]
    if code:
        parts += [f"compressor={expression(code, feedback)}", 'algorithm="two_shot"']
    if method == "diloco":
        return f"tx = relaxjax.diloco({', '.join([OPTIMIZER, *parts])}{BUCKET})"
    return _chain(OPTIMIZER, f"relaxjax.{method}({', '.join(parts)}{BUCKET})")


def sized(line: str, bucket_bytes: int) -> str:
    """The line with its buckets.

    Args:
      line: as made here.
      bucket_bytes: of a bucket; the usual size is left out.
    """
    usual = bucket_bytes == 8 * 2**20
    return line.replace(BUCKET, "" if usual else f", bucket_bytes={bucket_bytes}")
