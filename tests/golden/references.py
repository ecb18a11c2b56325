"""The golden vectors' rules, in float64, as slow and plain as they can be.

`python -m tests.golden.references` writes `relaxjax/golden/vectors.json` anew.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

import relaxjax.golden

FILE = Path(relaxjax.golden.__file__).parent / "vectors.json"
Config = dict[str, Any]
Arrays = dict[str, Any]


def nearest(x: float, values: list[float]) -> float:
    """The value nearest to x; of two, the one at an even place."""
    order = sorted(range(len(values)), key=lambda i: (abs(values[i] - x), i % 2))
    return values[order[0]]


def float8_values() -> list[float]:
    """All that float8_e4m3fn can say from 0 to 448, by its code."""
    found = []
    for code in range(127):
        exponent, fraction = divmod(code, 8)
        scale = 2.0 ** (max(exponent, 1) - 7)
        found.append(scale * ((exponent > 0) + fraction / 8))
    return found


def bits16_values(dtype: str) -> list[float]:
    """All that float16, or bfloat16, can say from 0 to its largest."""
    if dtype == "float16":
        return np.arange(0x7C00, dtype=np.uint16).view(np.float16).tolist()
    codes = np.arange(0x7F80, dtype=np.uint32) << 16
    return codes.view(np.float32).tolist()


VALUES = {
    "float16": bits16_values("float16"),
    "bfloat16": bits16_values("bfloat16"),
    "float8_e4m3fn": float8_values(),
}


def cast(config: Config, x: list[float]) -> Arrays:
    values = VALUES[config["dtype"]]
    return {"decoded": [np.copysign(nearest(abs(a), values), a) for a in x]}


def blocks(x: list[float], size: int | None) -> list[list[float]]:
    size = size or len(x)
    return [x[i : i + size] for i in range(0, len(x), size)]


def scaled_float8(config: Config, x: list[float]) -> Arrays:
    decoded = []
    for block in blocks(x, config["block_size"]):
        most = max(map(abs, block)) or 1.0
        for a in block:
            code = nearest(448 * abs(a) / most, VALUES["float8_e4m3fn"])
            decoded.append(np.copysign(code * most / 448, a))
    return {"decoded": decoded}


def quantize(config: Config, x: list[float]) -> Arrays:
    levels, decoded, codes = 2 ** (config["bits"] - 1) - 1, [], []
    for block in blocks(x, config["block_size"]):
        most = max(map(abs, block))
        for a in block:
            q = round(a * levels / most) if most else 0  # halves go to even
            codes.append(q)
            decoded.append(q * most / levels)
    return {"decoded": decoded, "codes": codes}


def element_values(name: str) -> list[float]:
    """All that an element can say from 0 up, by its code without the sign."""
    if name == "int8":
        return [code / 64 for code in range(128)]
    exponents, mantissa = int(name[1]), int(name[3])
    found = []
    for code in range(2 ** (exponents + mantissa)):
        field, part = divmod(code, 2**mantissa)
        scale = 2.0 ** (max(field, 1) - 2 ** (exponents - 1) + 1)
        found.append(scale * ((field > 0) + part / 2**mantissa))
    tops = {"e4m3": 448, "e5m2": 57344}  # above them are NaN and infinity
    return [a for a in found if a <= tops.get(name, math.inf)]


def element_code(name: str, a: float) -> tuple[int, float]:
    """The code nearest to a, and what it says."""
    values = element_values(name)
    said = nearest(abs(a), values)
    code, negative = values.index(said), math.copysign(1, a) < 0
    if name == "int8":
        return (-code % 256 if negative else code), math.copysign(said, a)
    sign = 2 ** (int(name[1]) + int(name[3]))
    return code + sign * negative, math.copysign(said, a)


def mx_exponent(scale: str, most: float, values: list[float], mantissa: int) -> int:
    """The power of two of a block, before it is kept within a byte."""
    emax = math.floor(math.log2(values[-1]))
    e = math.frexp(most)[1] - 1
    if scale == "even":
        step = 2.0 ** (e - mantissa)  # halves go up
        e = math.frexp(math.floor(most / step + 0.5) * step)[1] - 1
    if scale == "ceil":
        e += most > 2.0**e
    if scale == "rceil":
        d = float(np.float32(most) * np.float32(1 / values[-1]))
        return math.ceil(math.log2(d))
    return e - emax


def mx(config: Config, x: list[float]) -> Arrays:
    name, codes, scales, decoded = config["element"], [], [], []
    values = element_values(name)
    mantissa = 6 if name == "int8" else int(name[3])
    for block in blocks(x, 32):
        most = max(map(abs, block))
        e = mx_exponent(config["scale"], most, values, mantissa) if most else -127
        scales.append(min(max(e, -127), 127) + 127)
        for a in block:
            code, said = element_code(name, a / 2.0 ** (scales[-1] - 127))
            codes.append(code)
            decoded.append(said * 2.0 ** (scales[-1] - 127))
    return {"decoded": decoded, "codes": codes, "scale": scales}


def nvfp4(config: Config, x: list[float]) -> Arrays:
    whole, codes, scales, decoded = max(map(abs, x)) / 2688, [], [], []
    for block in blocks(x, 16):
        code, said = element_code("e4m3", max(map(abs, block)) / 6 / whole)
        scales.append(code)
        for a in block:
            code, unit = element_code("e2m1", a / (said * whole) if said else 0.0)
            codes.append(code)
            decoded.append(unit * said * whole)
    return {"decoded": decoded, "codes": codes, "scale": scales}


def min_max_uint8(config: Config, x: list[float]) -> Arrays:
    scale = 255 / (max(x) - min(x) + 1e-7)
    upper = round(max(x) * scale)
    lower = upper - 255
    codes = [min(round(a * scale), upper) - lower for a in x]
    return {"codes": codes, "decoded": [(q + lower) / scale for q in codes]}


def sign(config: Config, x: list[float]) -> Arrays:
    decoded = []
    for block in blocks(x, config["block_size"]):
        mean = sum(map(abs, block)) / len(block)
        decoded += [mean if a >= 0 else -mean for a in block]
    return {"decoded": decoded}


def top_k(config: Config, x: list[float]) -> Arrays:
    kept = sorted(range(len(x)), key=lambda i: (-abs(x[i]), i))[: config["k"]]
    return {"decoded": [a if i in kept else 0.0 for i, a in enumerate(x)]}


def moments(chances: list[tuple[float, float, float]]) -> Arrays:
    """Mean and variance of values that are `low`, or `high` with a probability."""
    mean = [low + p * (high - low) for low, high, p in chances]
    variance = [p * (1 - p) * (high - low) ** 2 for low, high, p in chances]
    return {"mean": mean, "variance": variance}


def between(a: float, unit: float) -> tuple[float, float, float]:
    """To a whole multiple of the unit, down or up."""
    whole = np.floor(abs(a) / unit) if unit else 0.0
    part = abs(a) / unit - whole if unit else 0.0
    return np.sign(a) * whole * unit, np.sign(a) * (whole + 1) * unit, part


def stochastic_quantize(config: Config, x: list[float]) -> Arrays:
    levels = 2 ** (config["bits"] - 1) - 1
    rows = blocks(x, config["block_size"])
    return moments([between(a, max(map(abs, b)) / levels) for b in rows for a in b])


def qsgd(config: Config, x: list[float]) -> Arrays:
    rows = blocks(x, config["block_size"])
    units = [np.linalg.norm(row) / config["levels"] for row in rows]
    return moments(
        [between(a, u) for row, u in zip(rows, units, strict=True) for a in row]
    )


def tern_grad(config: Config, x: list[float]) -> Arrays:
    rows = blocks(x, config["block_size"])
    return moments([between(a, max(map(abs, row))) for row in rows for a in row])


def natural(config: Config, x: list[float]) -> Arrays:
    found = []
    for a in x:
        low = 2.0 ** np.floor(np.log2(abs(a))) if a else 0.0
        part = abs(a) / low - 1 if a else 0.0
        found.append((np.sign(a) * low, np.sign(a) * 2 * low, part))
    return moments(found)


def random_k(config: Config, x: list[float]) -> Arrays:
    share = config["k"] / len(x)
    return moments([(0.0, a / share, share) for a in x])


def error_feedback_sign(config: Config, gradients: list[list[float]]) -> Arrays:
    residual = np.zeros(len(gradients[0]))
    sent, residuals = [], []
    for g in gradients:
        p = np.asarray(g) + residual
        c = np.asarray(sign({"block_size": None}, p.tolist())["decoded"])
        residual = p - c
        sent.append(c)
        residuals.append(residual)
    return {"sent": sent, "residual": residuals}


def momentum_correction(config: Config, gradients: list[list[float]]) -> Arrays:
    m, k = config["momentum"], config["k"]
    u = v = np.zeros(len(gradients[0]))
    before, sent = [], []
    for g in gradients:
        u = m * u + np.asarray(g)
        v = v + u
        c = np.asarray(top_k({"k": k}, v.tolist())["decoded"])
        before.append(v)
        sent.append(c)
        u, v = np.where(c != 0, 0, u), np.where(c != 0, 0, v)
    return {"waiting": before, "sent": sent}


def power_sgd(config: Config, matrices: Any, right: Any) -> Arrays:
    q = np.asarray(right, np.float64)
    workers = np.asarray(matrices, np.float64)
    residuals, outs = np.zeros_like(workers), []
    for _ in range(config["steps"]):
        m = workers + residuals
        p = orthonormal(np.mean([each @ q for each in m], axis=0))
        q = np.mean([each.T @ p for each in m], axis=0)
        outs.append(p @ q.T)
        if config["error_feedback"]:
            residuals = m - outs[-1]
    return {"approximation": outs}


def orthonormal(p: np.ndarray) -> np.ndarray:
    """Gram and Schmidt; a column without length stays zero."""
    found = np.zeros_like(p)
    for j, column in enumerate(p.T):
        rest = column - found @ (found.T @ column)
        norm = np.linalg.norm(rest)
        found[:, j] = rest / norm if norm else 0
    return found


def acp_sgd(config: Config, matrices: Any, left: Any, right: Any) -> Arrays:
    workers = np.asarray(matrices, np.float64)
    p, q = np.asarray(left, np.float64), np.asarray(right, np.float64)
    e = np.zeros_like(workers)
    outs, residuals = [], []
    for step in range(config["steps"]):
        m = workers + e
        if step % 2 == 0:
            basis = orthonormal(q)
            own = [each @ basis for each in m]
            p = np.mean(own, axis=0)
            outs.append(p @ basis.T)
            e = np.stack([x - y @ basis.T for x, y in zip(m, own, strict=True)])
        else:
            basis = orthonormal(p)
            own = [each.T @ basis for each in m]
            q = np.mean(own, axis=0)
            outs.append(basis @ q.T)
            e = np.stack([x - basis @ y.T for x, y in zip(m, own, strict=True)])
        residuals.append(e)
    return {"approximation": outs, "residual": residuals}


def adasum(config: Config, a: Any, b: Any) -> Arrays:
    a, b = np.asarray(a), np.asarray(b)
    dot = a @ b
    first, second = 1 - dot / (2 * a @ a), 1 - dot / (2 * b @ b)
    return {"sum": first * a + second * b}


def nesterov_outer(config: Config, deltas: Any) -> Arrays:
    lr, momentum = config["learning_rate"], config["momentum"]
    x = velocity = np.zeros(len(deltas[0]))
    seen = []
    for delta in np.asarray(deltas):
        velocity = momentum * velocity + delta
        x = x - lr * (delta + momentum * velocity)
        seen.append(x)
    return {"params": seen}


def radial_directional(config: Config, gradients: Any, weights: Any) -> Arrays:
    """The mean length along the mean direction; 0 where directions cancel."""
    del config
    w = np.asarray(weights) / np.sum(weights)
    g = np.asarray(gradients)[w > 0]
    w = w[w > 0]
    lengths = np.linalg.norm(g, axis=1)
    direction = w @ (g / np.where(lengths == 0, 1, lengths)[:, None])
    own = np.linalg.norm(direction)
    if own < 1e-6:
        return {"merged": 0 * direction}
    return {"merged": (w @ lengths) * direction / own}


def desynced(config: Config, gradients: Any) -> Arrays:
    c, gs = config, np.asarray(gradients, np.float64)
    state = {name: np.zeros(gs.shape[1:]) for name in ("params", "mu", "nu")}
    seen: Arrays = {name: [] for name in state}
    for step, g in enumerate(gs, 1):
        state["mu"] = c["b1"] * state["mu"] + (1 - c["b1"]) * g
        state["nu"] = c["b2"] * state["nu"] + (1 - c["b2"]) * g**2
        m, v = state["mu"] / (1 - c["b1"] ** step), state["nu"] / (1 - c["b2"] ** step)
        moved = c["learning_rate"] * m / (np.sqrt(v) + c["eps"])
        state["params"] = state["params"] - moved
        for name, every in c["periods"].items():
            if step % every == 0:
                state[name] = np.broadcast_to(state[name].mean(0), state[name].shape)
            seen[name].append(state[name])
    return seen


def polar_factor(u: np.ndarray) -> np.ndarray:
    """U V^T of u = U S V^T, nearly, by five steps of the Polar Express."""
    x = u / (1.01 * np.linalg.norm(u))
    for a, b, c in POLAR_EXPRESS:
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def dion2(config: Config, gradients: Any) -> Arrays:
    gradients = np.asarray(gradients, np.float64)
    b = config["neuron_decay"]
    by_column = b or gradients.shape[3] < gradients.shape[2]
    scale = math.sqrt(gradients.shape[3] / gradients.shape[2])
    g = gradients.swapaxes(2, 3) if by_column else gradients
    k = math.ceil(config["fraction"] * g.shape[2])
    m, v = np.zeros(g.shape[1:]), np.zeros(g.shape[2])
    updates, momenta = [], []
    for step in g:
        m = m + step
        norms = np.abs(m).sum(axis=2).mean(axis=0)
        rows = np.argsort(-norms, kind="stable")[:k]
        o = polar_factor(m[:, rows].mean(axis=0))
        if b:
            v[rows] = b * v[rows] + (1 - b) * np.mean(o**2, axis=1)
            even = o / np.sqrt(v[rows])[:, None]
            o = even * np.linalg.norm(o) / np.linalg.norm(even)
        m[:, rows] = config["decay"] * m[:, rows]
        out = np.zeros(g.shape[2:])
        out[rows] = scale * o
        updates.append(out.T if by_column else out)
        momenta.append(m.swapaxes(1, 2) if by_column else m.copy())
    return {"updates": updates, "momentum": np.stack(momenta)}


def arc_top_k(config: Config, gradients: Any) -> Arrays:
    """Rows by their norms: those of a sketch are in the same order, see ARC."""
    g = np.asarray(gradients, np.float64)
    k, eta = math.ceil(config["density"] * g.shape[2]), config["eta"]
    v, h = np.zeros(g.shape[1:]), np.zeros(g.shape[1:])
    seen: Arrays = {"updates": [], "momentum": [], "known": []}
    for step in g:
        v = (1 - eta) * v + eta * step
        p = v - h
        rows = np.argsort(-np.linalg.norm(p.mean(axis=0), axis=1), kind="stable")[:k]
        h = h.copy()
        h[:, rows] += p[:, rows]
        for name, x in (("updates", h.mean(axis=0)), ("momentum", v), ("known", h)):
            seen[name].append(x)
    return seen


def intersection_feedback(config: Config, gradients: Any) -> Arrays:
    """Top-k of chunks in two shots; a worker's own chunk enters as it is."""
    g, k = np.asarray(gradients, np.float64), config["k"]
    n, c = g.shape[1], g.shape[2] // g.shape[1]
    e = np.zeros(g.shape[1:])
    sent, residuals = [], []
    for step in g:
        p = e + step
        own = np.zeros_like(p)
        out = np.zeros(p.shape[1])
        for server in range(n):
            chunk = np.arange(server * c, (server + 1) * c)
            for i in range(n):
                first = np.argsort(-np.abs(p[i, chunk]), kind="stable")[:k]
                here = chunk if i == server else chunk[first]
                own[i, here] = p[i, here]
            mean = own[:, chunk].mean(axis=0)
            second = np.argsort(-np.abs(mean), kind="stable")[:k]
            out[chunk[second]] = mean[second]
        e = np.where(out != 0, p - own, p)
        sent.append(out)
        residuals.append(e)
    return {"sent": sent, "residual": residuals}


def cosine_transform(n: int) -> np.ndarray:
    """Orthonormal: each row the cosine of one frequency."""
    rows = [
        [math.cos(math.pi * a * (2 * b + 1) / 2 / n) for b in range(n)]
        for a in range(n)
    ]
    return np.array([np.array(row) / np.linalg.norm(row) for row in rows])


def demo(config: Config, gradients: Any) -> Arrays:
    g = np.asarray(gradients, np.float64)
    h, w = (
        max(d for d in range(1, config["chunk"] + 1) if side % d == 0)
        for side in g.shape[2:]
    )
    left, right = cosine_transform(h), cosine_transform(w)
    m = np.zeros(g.shape[1:])
    updates, momenta = [], []
    for step in g:
        m = config["decay"] * m + step
        out = np.zeros(g.shape[2:])
        for top in range(0, g.shape[2], h):
            for start in range(0, g.shape[3], w):
                block = np.s_[top : top + h, start : start + w]
                c = [left @ x[block] @ right.T for x in m]
                least = [np.sort(np.abs(x), axis=None)[-config["k"]] for x in c]
                sent = np.stack(
                    [
                        np.where(np.abs(x) >= s, x, 0)
                        for x, s in zip(c, least, strict=True)
                    ]
                )
                for x, t in zip(m, sent, strict=True):
                    x[block] -= left.T @ t @ right
                y = sent.sum(axis=0) / np.maximum((sent != 0).sum(axis=0), 1)
                out[block] = np.sign(left.T @ y @ right)
        updates.append(out)
        momenta.append(m.copy())
    return {"updates": updates, "momentum": np.stack(momenta)}


def dion(config: Config, gradients: Any, right: Any) -> Arrays:
    g, q = np.asarray(gradients, np.float64), np.asarray(right, np.float64)
    scale = math.sqrt(g.shape[3] / g.shape[2])  # n >= m
    m = np.zeros(g.shape[1:])
    updates, momenta = [], []
    for step in g:
        m = m + step
        basis = orthonormal(np.mean([x @ q for x in m], axis=0))
        own = [x.T @ basis for x in m]
        r = np.mean(own, axis=0)
        back = [(1 - config["decay"]) * basis @ each.T for each in own]
        m = m - np.stack(back)
        q = r / np.linalg.norm(r, axis=0)
        updates.append(scale * basis @ q.T)
        momenta.append(m)
    return {"updates": updates, "momentum": np.stack(momenta)}


def delayed_nesterov(config: Config, gradients: Any) -> Arrays:
    rate, momentum, every = (config[k] for k in ("learning_rate", "momentum", "every"))
    x, m, waiting = np.zeros(len(gradients[0])), np.zeros(len(gradients[0])), []
    params = []
    for d in np.asarray(gradients, np.float64):
        x = x - rate * d / every
        waiting.append(d)
        if len(waiting) == every:
            m = momentum * m + np.mean(waiting, axis=0)
            x, waiting = x - rate * momentum * m, []
        params.append(x)
    return {"params": params}


def heloco(config: Config, gradients: Any) -> Arrays:
    rate, mu = config["learning_rate"], config["momentum"]
    x, m = np.zeros(len(gradients[0])), np.zeros(len(gradients[0]))
    params = []
    for k, d in enumerate(np.asarray(gradients, np.float64)):
        rho = config["weights"][k % len(config["weights"])]
        if rho:
            g = rho * corrected(d, m, config)
            m = mu * m + (1 - mu) * g
            x = x - rate * (g + mu * m)
        params.append(x)
    return {"params": params}


def corrected(d: Any, m: Any, config: Config) -> Any:
    """An outer gradient of one tensor, turned by the momentum."""
    length, known = np.linalg.norm(d), np.linalg.norm(m)
    if not length or not known:
        return d
    unit, v = d / length, m / known
    c = np.sum(unit * v)
    heard = length / (length + config["doubt"] * known)
    if c >= config["aligned"]:
        return d
    if c < 0:
        b = min(config["shrink"] * -c * heard, config["shrink_most"])
        return d - b * c * length * v
    share = min(config["turn"] * (1 - c) * heard, 1)
    turned = (1 - share) * unit + share * v
    return length * turned / np.linalg.norm(turned)


def sparta(config: Config, start: Any) -> Arrays:
    """Of a whole number of partitions, whose order is each implementation's own."""
    assert config["steps"] % round(1 / config["share"]) == 0
    x = np.asarray(start, np.float64)
    return {"params": np.broadcast_to(x.mean(0), x.shape)}


def slow_momentum(config: Config, start: Any, gradient: Any) -> Arrays:
    anchor, g = np.asarray(start), np.asarray(gradient)
    rate, u, seen = config["learning_rate"], 0 * anchor, []
    for _ in range(config["rounds"]):
        x = anchor - config["sync_every"] * rate * g
        u = config["momentum"] * u + (anchor - x) / rate
        anchor = anchor - rate * u
        seen.append(anchor)
    return {"params": seen}


def streaming_diloco(config: Config, start: Any, targets: Any) -> Arrays:
    """Descent of f_i = |x - t_i|^2 / 2, [steps, workers, fragments of an element]."""
    t, anchor = np.asarray(targets), np.array(start, np.float64)
    every = config["sync_every"] // len(anchor)
    x, u, sent = np.tile(anchor, (len(t), 1)), 0 * anchor, 0 * t
    seen = []
    for step in range(config["steps"]):
        x = x - config["learning_rate"] * (x - t)
        for p in range(len(anchor)):
            left = (p + 1) * every - step % config["sync_every"] - 1
            if left == config["overlap"]:
                sent[:, p] = anchor[p] - x[:, p]
            if left == 0:
                delta = sent[:, p].mean()
                u[p] = config["outer_momentum"] * u[p] + delta
                moved = delta + config["outer_momentum"] * u[p]
                anchor[p] -= config["outer_learning_rate"] * moved
                own = config["mixing"] * x[:, p]
                x[:, p] = (1 - config["mixing"]) * anchor[p] + own
        seen.append(x.copy())
    return {"params": seen}


def delay_compensation(config: Config, params: Any, taken: Any, gradient: Any):
    x, old, g = map(np.asarray, (params, taken, gradient))
    fixed = g + config["strength"] * g * g * (x - old)
    return {"params": x - config["learning_rate"] * fixed}


def exact_diffusion(config: Config, start: Any, targets: Any, mixing: Any) -> Arrays:
    """Descent of f_i = (x - t_i)^2 / 2."""
    x, t, w = map(np.asarray, (start, targets, mixing))
    before, g_before, seen = x, 0 * x, []
    for step in range(config["steps"]):
        g = config["learning_rate"] * (x - t)
        new = w @ (x - g) if step == 0 else w @ (2 * x - before - (g - g_before))
        before, g_before, x = x, g, new
        seen.append(x)
    return {"params": seen}


def quasi_global_momentum(config: Config, start: Any, targets: Any, mixing: Any):
    """Descent of the same f."""
    x, t, w = map(np.asarray, (start, targets, mixing))
    rate, beta, m, seen = config["learning_rate"], config["momentum"], 0 * x, []
    for _ in range(config["steps"]):
        new = w @ (x - rate * (beta * m + (x - t)))
        m = beta * m + (1 - beta) * (x - new) / rate
        x = new
        seen.append(x)
    return {"params": seen}


def draw(seed: int, *shape: int) -> Any:
    """Gaussian float32 numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32).tolist()


POLAR_EXPRESS = [  # of Amsel et al. 2025, five steps from 0.001 on
    (8.28721202, -23.59588652, 17.30038731),
    (4.10705911, -2.94784992, 0.54484311),
    (3.94869085, -2.90890212, 0.55181914),
    (3.31841966, -2.48848802, 0.51004894),
    (2.30065202, -1.66890398, 0.41880731),
]
HALVES = [2.5, 3.5, -0.5, 7.0]
EDGES = [0.0, 1.0, -1.0, 1.001, 257.0, 259.0, 3.14159274, -0.1, 1e-5, 6e4]
SMALL = [0.0, 0.875, -1.0625, 1.1875, 17.0, 19.0, 448.0, -0.001953125, 0.0029296875]
ROUNDS = "Round to nearest, halves to even: IEEE 754."
OCP = "OCP Microscaling Formats v1.0, 2023; rceil as in cuBLAS and jax.nn."
NVIDIA = "NVIDIA's NVFP4 recipe, 2025: e2m1 x e4m3 x largest / 2688."
DESYNCED = "DES-LOC: Iacob et al. 2025; averages after the step."
DECOUPLED = "Decoupled DiLoCo: arXiv 2604.21428."
ARC = (
    "ARC-Top-K: Chen et al. 2025, with EF21 and momentum; all rows are multiples of "
    "one row, so that any sketch orders them alike."
)
OK_TOPK = "Ok-Topk: Li and Hoefler 2022, its feedback around top-k in two shots."
DEMO = "DeMo: Peng et al. 2024, as the authors' program has it, without its rate."
DION = "Dion: Ahn et al. 2025; each worker takes back what it sent itself."
AHN = "Dion2: Ahn et al. 2025; momentum of each worker's own, rows sent alone."
ZHANG = "ACP-SGD: Zhang et al. 2023, as the authors' program has it."
VOGELS = "PowerSGD: Vogels, Karimireddy, Jaggi 2019, algorithm 1."
DRAWS = {"draws": 20_000}
OVER = "Mean and variance of what is decoded, over so many draws."
SPREAD = [1.0, -0.7, 0.3, 0.0, -1.2, 0.9, 0.45, -0.05, 0.6, -0.8, 1.5, 0.2]
HUGE = {"x": [7e4, -1e5, 1.0]}
PAIR = {
    "start": [1.0, -1.0],
    "targets": [2.0, 0.0],
    "mixing": [[0.75, 0.25], [0.25, 0.75]],
}
ONE_WAY = {
    "start": [1.0, -1.0, 0.5],
    "targets": [2.0, 0.0, 5.0],
    "mixing": [[0.75, 0.25, 0.0], [0.0, 0.75, 0.25], [0.25, 0.0, 0.75]],
}
# Name, rule, config, inputs, source; the last two of a row may be tolerances.
ROWS: list[tuple[Any, ...]] = [
    ("cast, bfloat16", cast, {"dtype": "bfloat16"}, {"x": EDGES}, ROUNDS, 0, 0),
    ("cast, float16", cast, {"dtype": "float16"}, {"x": EDGES}, ROUNDS, 0, 0),
    (
        "cast, float8_e4m3fn",
        cast,
        {"dtype": "float8_e4m3fn"},
        {"x": SMALL},
        "OCP 8-bit floating point, 2023. " + ROUNDS,
        0,
        0,
    ),
    (
        "cast, too large for float16",
        cast,
        {"dtype": "float16"},
        HUGE,
        "Finite values are clamped to 65504, so that a mean stays finite.",
        0,
        0,
    ),
    (
        "float8 in blocks",
        scaled_float8,
        {"block_size": 4},
        {"x": draw(0, 12)},
        "Scale 448 / largest of the block, as in quantized all-reduces.",
    ),
    (
        "quantize, 8 bits",
        quantize,
        {"bits": 8, "block_size": 8},
        {"x": draw(1, 20)},
        "Symmetric, largest magnitude of the block over 127.",
    ),
    (
        "quantize, 4 bits",
        quantize,
        {"bits": 4, "block_size": 8},
        {"x": draw(2, 20)},
        "Symmetric, largest magnitude of the block over 7.",
    ),
    (
        "quantize, 2 bits, halves",
        quantize,
        {"bits": 2, "block_size": 4},
        {"x": [1.0, 0.5, -0.5, 0.75, 2.0, -1.0, 1.5, 0.0]},
        "Symmetric, one level; halves go to even.",
    ),
    (
        "quantize, zeros",
        quantize,
        {"bits": 8, "block_size": 2},
        {"x": [0.0, 0.0, 3.0, -1.0]},
        "A block of zeros stays zero.",
    ),
    *[
        (
            f"mx {element}, {scale}",
            mx,
            {"element": element, "scale": scale},
            {"x": [1.9, -1.0, 0.3, 0.01]},
            OCP,
            0,
            0,
        )
        for element in ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "int8")
        for scale in ("rceil", "floor", "even", "ceil")
    ],
    (
        "mx e4m3, ceil, of powers of two",
        mx,
        {"element": "e4m3", "scale": "ceil"},
        {"x": [4.0, -1.0, 0.3] + [0.0] * 29 + [4.25, 1.0]},
        OCP + " A power of two needs no more than itself.",
        0,
        0,
    ),
    (
        "mx int8, ceil, of the largest floats",
        mx,
        {"element": "int8", "scale": "ceil"},
        {"x": [3.0e38, -1.0e38]},
        OCP + " Byte 254 is the largest scale.",
        0,
        0,
    ),
    (
        "mx int8, at its end",
        mx,
        {"element": "int8", "scale": "floor"},
        {"x": [1.999, -1.999, 0.5]},
        OCP + " -128 is left out.",
        0,
        0,
    ),
    (
        "mx e4m3, blocks of zeros, of least and of large floats",
        mx,
        {"element": "e4m3", "scale": "rceil"},
        {"x": [0.0] * 32 + [2.0**-126, -(2.0**-126)] * 16 + [1e38] * 3 + [150.0]},
        OCP + " Byte 0 is 2^-127; a block of zeros has it.",
        0,
        0,
    ),
    (
        "nvfp4, one block",
        nvfp4,
        {},
        {"x": [1.9, -1.0, 0.3, 0.01]},
        NVIDIA,
    ),
    (
        "nvfp4, beside a large block and a lost one",
        nvfp4,
        {},
        {"x": [1.9, -1.0, 0.3, 0.01] + [0.0] * 12 + [38.0] * 16 + [1e-5] * 16},
        NVIDIA + " A block scale of 0 is kept as it is.",
    ),
    (
        "min_max_uint8",
        min_max_uint8,
        {},
        {"x": [-1.0, 0.0, 0.5, 2.0]},
        "ByteGrad of BAGUA: Gan et al. 2021, with its 1e-7.",
    ),
    (
        "min_max_uint8, whose lower end is 255 below the upper one",
        min_max_uint8,
        {},
        {"x": [-0.3, 0.14, 0.5, 0.71]},
        "The same: the lower end is not rounded by itself.",
    ),
    (
        "min_max_uint8, zeros",
        min_max_uint8,
        {},
        {"x": [0.0, 0.0, 0.0]},
        "The same: its 1e-7 is for arrays of one value.",
    ),
    (
        "sign, mean scale",
        sign,
        {"block_size": 8},
        {"x": draw(3, 20)},
        "EF-signSGD: Karimireddy et al. 2019.",
    ),
    (
        "sign, a zero",
        sign,
        {"block_size": None},
        {"x": [1.0, 0.0, -5.0]},
        "The bit of 0 says +: what is sent is what is decoded.",
    ),
    ("top_k", top_k, {"k": 3}, {"x": draw(4, 12)}, "The k largest magnitudes.", 0, 0),
    (
        "quantize, 4 bits, stochastic rounding",
        stochastic_quantize,
        DRAWS | {"bits": 4, "block_size": 6},
        {"x": SPREAD},
        "Unbiased; the nearer level is the likelier. " + OVER,
        0.04,
        0.004,
    ),
    (
        "QSGD, 4 levels",
        qsgd,
        DRAWS | {"levels": 4, "block_size": None},
        {"x": SPREAD},
        "QSGD: Alistarh et al. 2017. " + OVER,
        0.04,
        0.02,
    ),
    (
        "TernGrad",
        tern_grad,
        DRAWS | {"block_size": 4},
        {"x": SPREAD},
        "TernGrad: Wen et al. 2017, without clipping. " + OVER,
        0.04,
        0.04,
    ),
    (
        "natural compression",
        natural,
        DRAWS,
        {"x": SPREAD},
        "Natural compression: Horvath et al. 2019. " + OVER,
        0.04,
        0.02,
    ),
    (
        "random k",
        random_k,
        DRAWS | {"k": 4},
        {"x": SPREAD},
        "Stich et al. 2018, divided by k / d: unbiased. " + OVER,
        0.04,
        0.04,
    ),
    (
        "error feedback of the sign",
        error_feedback_sign,
        {},
        {"gradients": [[1.0, -3.0]] * 4},
        "EF14 with the mean scale: Karimireddy et al. 2019.",
    ),
    (
        "momentum correction",
        momentum_correction,
        {"momentum": 0.9, "k": 1},
        {"gradients": [[1.0, -3.0, 2.0]] * 4},
        "Deep gradient compression: Lin et al. 2018, with factor masking.",
    ),
    (
        "PowerSGD, rank 1, warm start",
        power_sgd,
        {"steps": 3, "error_feedback": False},
        {"matrices": [[[2.0, 0.0], [0.0, 1.0]]], "right": [[1.0], [1.0]]},
        VOGELS,
    ),
    (
        "PowerSGD, rank 2, three workers, error feedback",
        power_sgd,
        {"steps": 3, "error_feedback": True},
        {"matrices": draw(5, 3, 6, 5), "right": draw(6, 5, 2)},
        VOGELS + " Residuals against what all receive.",
        1e-4,
        1e-4,
    ),
    (
        "PowerSGD, rank 1, zeros",
        power_sgd,
        {"steps": 1, "error_feedback": False},
        {"matrices": [[[0.0, 0.0], [0.0, 0.0]]], "right": [[1.0], [1.0]]},
        VOGELS + " A gradient of zeros stays zero.",
    ),
    (
        "ACP-SGD, rank 1, two workers by hand",
        acp_sgd,
        {"steps": 2},
        {
            "matrices": [[[2.0, 0.0], [0.0, 2.0]], [[2.0, 0.0], [0.0, 0.0]]],
            "left": [[1.0], [0.0]],
            "right": [[1.0], [1.0]],
        },
        ZHANG,
        1e-5,
        1e-6,
    ),
    (
        "ACP-SGD, rank 2, three workers",
        acp_sgd,
        {"steps": 5},
        {"matrices": draw(7, 3, 6, 5), "left": draw(8, 6, 2), "right": draw(9, 5, 2)},
        ZHANG + " Residuals of what each worker sent.",
        1e-4,
        1e-4,
    ),
    (
        "Adasum of two",
        adasum,
        {},
        {"a": [1.0, 0.0], "b": [1.0, 1.0]},
        "Adasum: Maleki et al. 2021.",
    ),
    (
        "radial-directional mean",
        radial_directional,
        {},
        {
            "gradients": [[3.0, 4.0, 0.0], [0.0, 0.0, -2.0], [9.0, 9.0, 9.0]],
            "weights": [3.0, 1.0, 0.0],
        },
        DECOUPLED,
    ),
    (
        "radial-directional mean, opposite",
        radial_directional,
        {},
        {"gradients": [[3.0, -4.0], [-3.0, 4.0]], "weights": [1.0, 1.0]},
        DECOUPLED + " Directions that cancel merge to zero.",
    ),
    (
        "radial-directional mean, zeros",
        radial_directional,
        {},
        {"gradients": [[0.0, 0.0], [0.0, 0.0]], "weights": [2.0, 1.0]},
        DECOUPLED + " Zeros stay zero.",
    ),
    (
        "outer Nesterov",
        nesterov_outer,
        {"learning_rate": 0.7, "momentum": 0.9},
        {"deltas": [[1.0, -0.5]] * 5},
        "DiLoCo: Douillard et al. 2023.",
    ),
    (
        "streaming DiLoCo",
        streaming_diloco,
        {
            "learning_rate": 0.25,
            "outer_learning_rate": 0.7,
            "outer_momentum": 0.9,
            "sync_every": 4,
            "overlap": 1,
            "mixing": 0.5,
            "steps": 12,
        },
        {"start": [1.0, -2.0], "targets": [[0.0, 1.0], [2.0, 4.0], [-1.0, 0.5]]},
        "Streaming DiLoCo: Douillard et al. 2025; fragments in torchft's order.",
    ),
    (
        "streaming DiLoCo, a quarter of its own",
        streaming_diloco,
        {
            "learning_rate": 0.25,
            "outer_learning_rate": 0.7,
            "outer_momentum": 0.9,
            "sync_every": 4,
            "overlap": 1,
            "mixing": 0.25,
            "steps": 8,
        },
        {"start": [1.0, -2.0], "targets": [[0.0, 1.0], [2.0, 4.0], [-1.0, 0.5]]},
        "The same; `mixing` is the share of the worker's own params.",
    ),
    (
        "intersection feedback, one of each chunk, two workers by hand",
        intersection_feedback,
        {"k": 1},
        {"gradients": [[[4.0, 1.0, 3.0, 0.0], [0.0, 6.0, 1.0, 2.0]]] * 2},
        OK_TOPK,
        1e-5,
        1e-6,
    ),
    (
        "intersection feedback, two of each chunk, three workers",
        intersection_feedback,
        {"k": 2},
        {"gradients": draw(32, 6, 3, 15)},
        OK_TOPK,
        1e-4,
        1e-5,
    ),
    (
        "ARC-Top-K, one row of two, two workers by hand",
        arc_top_k,
        {"density": 0.5, "eta": 0.5},
        {"gradients": [[[[4.0] * 3, [4.0] * 3], [[6.0] * 3, [0.0] * 3]]] * 3},
        ARC,
        1e-5,
        1e-6,
    ),
    (
        "ARC-Top-K, two rows of six, three workers",
        arc_top_k,
        {"density": 0.3, "eta": 0.4},
        {
            "gradients": [
                [[[a, -2 * a, a / 2, a] for a in rows] for rows in workers]
                for workers in draw(31, 5, 3, 6)
            ]
        },
        ARC,
        1e-4,
        1e-5,
    ),
    (
        "DeMo, one coefficient of four, two workers by hand",
        demo,
        {"k": 1, "chunk": 2, "decay": 0.5},
        {"gradients": [[[[5.0, 3.0], [5.0, 3.0]], [[4.0, -3.0], [4.0, -3.0]]]] * 2},
        DEMO,
        1e-5,
        1e-6,
    ),
    (
        "DeMo, three coefficients of twelve, three workers",
        demo,
        {"k": 3, "chunk": 4, "decay": 0.9},
        {"gradients": draw(25, 4, 3, 6, 8)},
        DEMO,
        1e-4,
        1e-5,
    ),
    (
        "Dion, rank 1, two workers by hand",
        dion,
        {"decay": 0.5},
        {
            "gradients": [[[[4.0, 0.0], [0.0, 0.0]], [[2.0, 0.0], [0.0, 8.0]]]] * 2,
            "right": [[1.0], [1.0]],
        },
        DION,
        1e-5,
        1e-6,
    ),
    (
        "Dion, rank 2, three workers",
        dion,
        {"decay": 0.95},
        {"gradients": draw(23, 5, 3, 6, 4), "right": draw(24, 4, 2)},
        DION,
        1e-3,
        1e-4,
    ),
    (
        "Dion2, one row of two, two workers by hand",
        dion2,
        {"fraction": 0.5, "decay": 0.5, "neuron_decay": 0.0},
        {"gradients": [[[[4.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, 3.0]]]] * 3},
        AHN,
        1e-4,
        1e-6,
    ),
    (
        "Dion2, half of the columns, three workers",
        dion2,
        {"fraction": 0.5, "decay": 0.95, "neuron_decay": 0.0},
        {"gradients": draw(21, 4, 3, 5, 4)},
        AHN,
        1e-3,
        1e-4,
    ),
    (
        "Dion2, 0.3 of four rows are two of them",
        dion2,
        {"fraction": 0.3, "decay": 0.95, "neuron_decay": 0.0},
        {"gradients": draw(25, 3, 2, 4, 6)},
        AHN + " Numbers of rows are rounded up.",
        1e-3,
        1e-4,
    ),
    (
        "NorDion2, half of the columns, three workers",
        dion2,
        {"fraction": 0.5, "decay": 0.95, "neuron_decay": 0.9},
        {"gradients": draw(22, 4, 3, 3, 6)},
        AHN + " Neurons as in NorMuon: Li et al. 2025.",
        1e-3,
        1e-4,
    ),
    (
        "delayed Nesterov, two rounds of two",
        delayed_nesterov,
        {"learning_rate": 1.0, "momentum": 0.5, "every": 2},
        {"gradients": [[1.0, 2.0], [1.0, 0.0], [6.0, 4.0], [2.0, -4.0]]},
        "Delayed Nesterov: Liu et al. 2024, with its c = 0.",
        1e-5,
        1e-6,
    ),
    (
        "HeLoCo, along, against and across, and one of no weight",
        heloco,
        {
            "learning_rate": 1.0,
            "momentum": 0.5,
            "weights": [1.0, 1.0, 1.0, 0.0, 0.5],
            "aligned": 0.2,
            "shrink": 1.0,
            "shrink_most": 1.0,
            "turn": 1.0,
            "doubt": 1.0,
        },
        {
            "gradients": [
                [2.0, 0.0],
                [-1.0, 0.0],
                [0.0, 0.25],
                [9.0, 9.0],
                [-2.0, 1.0],
                [1.0, 1.0],
            ]
        },
        "HeLoCo: Al Asif et al. 2026, as notes give it.",
        1e-5,
        1e-6,
    ),
    (
        "SPARTA, all of a partition",
        sparta,
        {"share": 0.25, "steps": 8},
        {"start": draw(12, 3, 10)},
        "SPARTA: Beton et al. 2025, as exo gym's program has it.",
        1e-5,
        1e-6,
    ),
    (
        "DES-LOC, two workers by hand",
        desynced,
        {
            "learning_rate": 1.0,
            "b1": 0.5,
            "b2": 0.5,
            "eps": 0.0,
            "periods": {"params": 2, "mu": 3, "nu": 4},
        },
        {"gradients": [[[1.0], [3.0]]] * 4},
        DESYNCED,
        1e-5,
        1e-6,
    ),
    (
        "DES-LOC, three workers",
        desynced,
        {
            "learning_rate": 0.1,
            "b1": 0.9,
            "b2": 0.95,
            "eps": 1e-8,
            "periods": {"params": 2, "mu": 3, "nu": 5},
        },
        {"gradients": draw(10, 11, 3, 4)},
        DESYNCED,
        1e-4,
        1e-5,
    ),
    (
        "desynced Adam, a large epsilon",
        desynced,
        {
            "learning_rate": 0.1,
            "b1": 0.9,
            "b2": 0.95,
            "eps": 0.5,
            "periods": {"params": 2, "mu": 3, "nu": 5},
        },
        {"gradients": draw(26, 4, 3, 4)},
        DESYNCED + " Outside of the root.",
        1e-4,
        1e-5,
    ),
    (
        "slow momentum",
        slow_momentum,
        {"learning_rate": 0.1, "momentum": 0.5, "sync_every": 3, "rounds": 4},
        {"start": [1.0], "gradient": [1.0]},
        "SlowMo: Wang et al. 2020, slow learning rate 1.",
    ),
    (
        "delay compensation",
        delay_compensation,
        {"learning_rate": 0.1, "strength": 0.04},
        {"params": [1.0], "taken": [0.5], "gradient": [2.0]},
        "DC-ASGD: Zheng et al. 2017.",
    ),
    (
        "delay compensation, of negative gradients",
        delay_compensation,
        {"learning_rate": 0.1, "strength": 0.04},
        {"params": [1.0, -1.0], "taken": [0.5, 0.25], "gradient": [-2.0, -3.0]},
        "DC-ASGD: Zheng et al. 2017. The square of a gradient has no sign.",
    ),
    (
        "exact diffusion",
        exact_diffusion,
        {"learning_rate": 0.1, "steps": 4},
        PAIR,
        "D^2: Tang et al. 2018; exact diffusion: Yuan et al. 2019.",
    ),
    (
        "quasi-global momentum",
        quasi_global_momentum,
        {"learning_rate": 0.1, "momentum": 0.9, "steps": 3},
        PAIR | {"start": [0.0, 0.0], "mixing": [[0.5, 0.5], [0.5, 0.5]]},
        "QG-DSGDm: Lin et al. 2021.",
    ),
    (
        "quasi-global momentum, on a ring of one direction",
        quasi_global_momentum,
        {"learning_rate": 0.1, "momentum": 0.9, "steps": 3},
        ONE_WAY,
        "QG-DSGDm: Lin et al. 2021. Worker i takes row i of the weights.",
    ),
]


def vectors() -> list[dict[str, Any]]:
    """As they are written: inputs are float32 numbers."""
    found = []
    for name, rule, config, inputs, source, *allowed in ROWS:
        rtol, atol = allowed or (1e-5, 1e-6)
        exact = {k: np.asarray(x, np.float32).tolist() for k, x in inputs.items()}
        outputs = rule(config, **exact)
        found.append(
            {
                "name": name,
                "function": rule.__name__,
                "config": config,
                "inputs": exact,
                "outputs": {k: np.asarray(x).tolist() for k, x in outputs.items()},
                "rtol": rtol,
                "atol": atol,
                "source": source,
            }
        )
    return found


def text() -> str:
    rows = ",\n".join(json.dumps(row) for row in vectors())
    return f'{{"format": {relaxjax.golden.FORMAT}, "vectors": [\n{rows}\n]}}\n'


if __name__ == "__main__":
    FILE.write_text(text())
