"""The line `tx = ...` of a relaxation, as one would write it.

`BUCKET` stands where the size of a bucket is said, if it is not the usual one.
"""

BUCKET = "{bucket}"

_COMPRESSORS = {
    "bf16": "cast(jnp.bfloat16)",
    "fp16": "cast(jnp.float16)",
    "fp8": "cast(jnp.float8_e4m3fn)",
    "quantize8": "quantize(8)",
    "quantize4": "quantize(4)",
    "quantize2": "quantize(2)",
    "stochastic8": "quantize(8, stochastic_rounding=True)",
    "stochastic4": "quantize(4, stochastic_rounding=True)",
    "stochastic2": "quantize(2, stochastic_rounding=True)",
    "codebook8": "codebook(8)",
    "codebook4": "codebook(4)",
    "codebook2": "codebook(2)",
    "qsgd": "qsgd(7)",
    "dithering": "dithering(7)",
    "top_k": "top_k(0.01)",
    "random_k": "random_k(0.01)",
    "random_block": "random_block(0.01)",
    "threshold": "threshold(1e-3, capacity=1024)",
}
_FEEDBACKS = {"ef14": "error_feedback"}
_AXES = {1: '"data"', 2: '("host", "device")'}
OPTIMIZER = "optimizer"


def _chain(*parts: str) -> str:
    return f"tx = optax.chain({', '.join(parts)})"


def compressor(name: str, feedback: str = "") -> str:
    """The expression that makes a compressor.

    Args:
      name: as relaxations spell it; one that takes nothing is its own function.
      feedback: as they spell it, or "".
    """
    made = f"relaxjax.compression.{_COMPRESSORS.get(name, f'{name}()')}"
    if feedback:
        made = f"relaxjax.compression.{_FEEDBACKS.get(feedback, feedback)}({made})"
    return made


def all_reduce(
    code: str = "", feedback: str = "", algorithm: str = "", axes: int = 1
) -> str:
    """Before the optimizer."""
    parts = [_AXES[axes]]
    parts += [f"compressor={compressor(code, feedback)}"] if code else []
    parts += [f'algorithm="{algorithm}"'] if algorithm else []
    return _chain(f"relaxjax.all_reduce({', '.join(parts)}{BUCKET})", OPTIMIZER)


def partly(code: str, feedback: str, algorithm: str, plain: float) -> str:
    """Before the optimizer, with what is sent first as it is."""
    coded = [_AXES[1], f"compressor={compressor(code, feedback)}"]
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
    parts += [f"compressor={compressor(code)}"] if code else []
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
        parts += [f"compressor={compressor(code, feedback)}", 'algorithm="two_shot"']
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
