"""A character language model of the source text of the Python standard library.

Real text that every machine has: the top-level modules, in alphabetical order. Every
tenth file is held out whole. The model is a small causal transformer.

    bits per character = mean of -log2 p(next character | those before it)
"""

import math
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core.foreign._extra import extra
from relaxjax.tasks._task import Task, cross_entropy, describe

with extra("the task chars needs"):
    from flax import nnx

STEPS, RATE = 1000, 1e-2
SYMBOLS = 128  # ASCII; all other bytes are the last symbol
CONTEXT = 64  # characters that the model sees
_CAP = 4 * 2**20  # largest number of bytes of text
_EVERY_TENTH = 10
_HELD_OUT_WINDOWS = 512


class Block(nnx.Module):
    """Causal self-attention, then a perceptron, with a normalization before each."""

    def __init__(self, width: int, heads: int, *, rngs: nnx.Rngs):
        self.heads = heads
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.queries_keys_values = nnx.Linear(width, 3 * width, rngs=rngs)
        self.mix = nnx.Linear(width, width, rngs=rngs)
        self.second_norm = nnx.LayerNorm(width, rngs=rngs)
        self.widen = nnx.Linear(width, 4 * width, rngs=rngs)
        self.narrow = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:  # f32[rows, time, width]
        """The block's output, of the same shape."""
        projected = in_rows(self.queries_keys_values, self.norm(x))
        split = projected.reshape(*x.shape[:2], 3, self.heads, -1)
        q, k, v = (split[:, :, i] for i in range(3))
        attended = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + in_rows(self.mix, attended.reshape(x.shape))
        wide = in_rows(self.widen, self.second_norm(x))
        return x + in_rows(self.narrow, nnx.gelu(wide))


class LanguageModel(nnx.Module):
    """Logits of the next symbol at each position."""

    def __init__(self, *, width: int, layers: int, heads: int, rngs: nnx.Rngs):
        self.symbols = nnx.Embed(SYMBOLS, width, rngs=rngs)
        self.positions = nnx.Embed(CONTEXT, width, rngs=rngs)
        self.blocks = nnx.List(Block(width, heads, rngs=rngs) for _ in range(layers))
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.output = nnx.Linear(width, SYMBOLS, rngs=rngs)

    def __call__(self, symbols: jax.Array) -> jax.Array:  # integer[rows, time]
        """float32[rows, time, SYMBOLS]."""
        x = self.symbols(symbols) + self.positions(jnp.arange(symbols.shape[1]))
        for block in self.blocks:
            x = block(x)
        return in_rows(self.output, self.norm(x))


def in_rows(layer: nnx.Linear, x: jax.Array) -> jax.Array:
    """The layer's output for x [..., m], by a product of two matrices.

    Where x has more axes, XLA on CPU copies the output's gradient before the product
    with which the weights' gradient is made, and multiplies more slowly.
    """
    return layer(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], -1)


def model(seed: int, width: int = 64, layers: int = 2) -> tuple[Any, Any]:
    """The model without its params, and these."""
    whole = LanguageModel(width=width, layers=layers, heads=4, rngs=nnx.Rngs(seed))
    graph, variables = nnx.split(whole, nnx.Param)
    return graph, nnx.to_pure_dict(variables)  # no Variable of each leaf in each step


def chars(seed: int, *, width: int = 64, layers: int = 2) -> Task:
    """The source text as a task.

    Args:
      seed: seed of the model's initial parameters.
      width: width of the transformer.
      layers: number of its blocks.
    """
    train_files, held_out_files = split_files(source_files())
    whole = describe(file.read_bytes() for file in train_files + held_out_files)
    graph, params = model(seed, width, layers)

    def loss(params, batch):  # nats per character
        symbols = batch.astype(jnp.int32)
        logits = nnx.merge(graph, params)(symbols[:, :-1])
        return cross_entropy(logits, symbols[:, 1:])

    def windows_of(files: list[Path]) -> np.ndarray:
        return _evenly_spaced(encode(files), _HELD_OUT_WINDOWS)

    def on(windows: np.ndarray) -> Callable[[Any], jax.Array]:
        return jax.jit(lambda params: loss(params, windows) / math.log(2))

    held_out = windows_of(held_out_files)

    def task(files: list[Path], validation: list[Path]) -> Task:
        text = encode(files)

        def batches(seed: int, rows: int) -> Iterator[np.ndarray]:
            rng = np.random.default_rng(seed)
            while True:
                yield _windows(text, rng.integers(len(text) - CONTEXT, size=rows))

        return Task(
            name="chars",
            metric_name="bits_per_character",
            data=whole,
            params=params,
            loss=loss,
            metric=on(held_out),
            batches=batches,
            steps=STEPS,
            batch_size=32,
            learning_rate=RATE,
            validation=on(windows_of(validation)) if validation else None,
            split=None if validation else lambda: task(*split_files(train_files)),
            split_note="every tenth of the training files",
            held_out=held_out,
        )

    return task(train_files, [])


def source_files(folder: Path | None = None, *, cap: int = _CAP) -> list[Path]:
    """Top-level modules of a folder (the standard library), sorted, of `cap` bytes."""
    folder = folder or Path(sysconfig.get_paths()["stdlib"])
    files = sorted(folder.glob("*.py"))
    sizes = np.cumsum([file.stat().st_size for file in files])
    return [file for file, end in zip(files, sizes, strict=True) if end <= cap]


def split_files(files: list[Path]) -> tuple[list[Path], list[Path]]:
    """Training files and held-out files; too few files to hold one out are refused."""
    if len(files) < _EVERY_TENTH:
        folder = sysconfig.get_paths()["stdlib"]
        raise ValueError(
            f"task 'chars' reads the standard library's source, but {folder} has "
            f"{len(files)} .py files, and it takes {_EVERY_TENTH} or more. Use a "
            "Python with its library unpacked, or --task digits"
        )
    held_out = files[_EVERY_TENTH - 1 :: _EVERY_TENTH]
    return [file for file in files if file not in held_out], held_out


def encode(files: list[Path]) -> np.ndarray:
    """The files' text, one after another, as uint8 symbols below `SYMBOLS`."""
    raw = np.frombuffer(b"".join(file.read_bytes() for file in files), np.uint8)
    return np.minimum(raw, SYMBOLS - 1)


def _windows(text: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """uint8[len(starts), CONTEXT + 1], a piece of the text in each row."""
    return text[starts[:, None] + np.arange(CONTEXT + 1)]


def _evenly_spaced(text: np.ndarray, count: int) -> np.ndarray:
    return _windows(text, np.linspace(0, len(text) - CONTEXT - 1, count).astype(int))
