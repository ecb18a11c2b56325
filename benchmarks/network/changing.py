"""The autopilot over a link that changes, beside what one would have done in hindsight.

    worth       steps of plain all-reduce / steps of a row, to the same held-out loss
    cost        seconds of a step / worth, at each rate
    hindsight   at each phase the row that costs least there, from its first step on
    nulls       the row that runs first, for ever; the first plan's row, for ever

Worth and seconds are measured before, over links that stay. The loss is that of plain
all-reduce after so many steps.

Every program is compiled before, so that the clock tells steps and changes.

Cost: a training of each row at the first rate; in each round one of each row, one in
hindsight, one by the autopilot.
"""

import json
import math
import random
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Annotated, Any

import jax
import typer

from benchmarks.network.journeys import (
    NAME,
    Journey,
    Phase,
    Policy,
    by_phase,
    fixed,
    piloted,
    told_of,
    travel,
)
from benchmarks.network.lab import Lab
from benchmarks.network.methods import ALONE, RELAXJAX, Method
from benchmarks.network.problem import Shape, task
from benchmarks.report import Plot, Result, Run, Table, benchmark
from relaxjax import plan
from relaxjax.cli.common._errors import user_errors
from relaxjax.controllers import Controller
from relaxjax.hosts import Namespaces
from relaxjax.plan._network import codecs
from relaxjax.schedule import Link

# What a plan allows where nothing else is said ("equal" to plain gradients), at most.
METHODS = tuple(
    Method(system=RELAXJAX, name=name, options=options, period=period)
    for name, options, period in (
        ("all_reduce", {}, 1),
        ("all_reduce+quantize8@two_shot", {}, 1),
        ("all_reduce+quantize4+ef14@two_shot", {}, 1),
    )
)
HINDSIGHT, AUTOPILOT = "hindsight", "autopilot"
LATENCY, CODEC = 1e-3, 2e9  # what the plan is told of the links, and of codecs
MOST = 1.10
"""The autopilot's seconds over those of hindsight, at most."""
_LONG = 3  # times the steps of plain all-reduce, before a training is given up
_DWELL, _GAIN = 20, 0.1
_WINDOWS = 256


@benchmark("changing_link")
def changing(
    run: Run,
    rate: Annotated[
        list[float] | None,
        typer.Option(min=0.1, help="Mbit/s, phase by phase; default: 1000, 5, 1000."),
    ] = None,
    until: Annotated[
        list[int] | None,
        typer.Option(
            min=1, help="Steps before which a phase ends; default: 1500, 1550."
        ),
    ] = None,
    steps: Annotated[
        int, typer.Option(min=2, help="Of plain all-reduce, to the loss.")
    ] = 3000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of all.")] = 2,
    rows: Annotated[int, typer.Option(min=1, help="Rows of a host in a step.")] = 2,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="Of Adam.")] = 2e-3,
    width: Annotated[int, typer.Option(min=8, help="Width of the model.")] = 64,
    layers: Annotated[int, typer.Option(min=1, help="Layers of the model.")] = 2,
    hosts: Annotated[int, typer.Option(min=2, help="Number of hosts.")] = 4,
    seed: Annotated[int, typer.Option(help="Seed of the order in rounds.")] = 0,
) -> Result:
    """The autopilot over a link that changes, beside fixed choices and hindsight."""
    with user_errors():
        phases = phases_of(rate or (1000.0, 5.0, 1000.0), until or (1500, 1550))
    why = Namespaces.missing()
    links = f"loopback: {why}" if why else "namespaces, reno"
    given = {"rate": [p.rate for p in phases], "until": [p.until for p in phases[:-1]]}
    result: dict[str, Any] = {"conditions": run.conditions(links=links, **given)}
    shape = Shape(width, layers, hosts)
    with Lab([], shape, steps=steps, rows=rows, windows=_WINDOWS) as lab:
        result |= measured(lab, phases, steps, rate=learning_rate)
        run.save(result)
        goal = Journey(result["curves"][0], []).losses()[-1]
        pilot = pilot_of(result, shape, phases[0].rate)
        policies = policies_of(result, phases, pilot)
        result |= {"loss": goal, "journeys": []}
        order = random.Random(seed)
        for number in range(rounds):
            for name in order.sample([*policies], len(policies)):
                policy = policies[name]()
                ways: dict[str, Any] = {"rate": learning_rate, "goal": goal}
                ways |= {"most": _LONG * steps, "told": steps}
                way = travel(lab, METHODS, policy, phases, **ways)
                row = {"round": number, "name": name, **way._asdict()}
                row |= {"seconds": way.to(goal), "steps": way.to(goal, 0)}
                print({**row, "curve": None}, flush=True)
                result["journeys"].append(row)
                run.save(result)
    return _report(run, result)


def phases_of(rates: Sequence[float], until: Sequence[int]) -> list[Phase]:
    """The phases; the last has no end.

    Raises:
      ValueError: there are not as many ends as changes, or they do not ascend.
    """
    if len(until) != len(rates) - 1 or [*until] != sorted(set(until)):
        raise ValueError(
            f"until={[*until]} must ascend, one for each change between "
            f"rates={[*rates]}"
        )
    return [Phase(*pair) for pair in zip(rates, (*until, math.inf), strict=True)]


def measured(
    lab: Lab, phases: Sequence[Phase], steps: int, *, rate: float
) -> dict[str, Any]:
    """Curves over the first link, worth, and seconds of a step at each rate."""
    seconds: dict[str, dict[float, float]] = {}
    alone = Method(system=RELAXJAX, name=ALONE)
    for method in (alone, *METHODS):
        seconds[method.label] = {}
        for mbit in dict.fromkeys(phase.rate for phase in phases):
            lab.shape(mbit)
            seconds[method.label][mbit] = step_seconds(lab, method, steps, rate)
    print(seconds, flush=True)
    first, ways = (
        [phases[0]._replace(until=math.inf)],
        {"rate": rate, "most": steps, "told": steps},
    )
    ways_there = [
        travel(lab, METHODS, fixed(k), first, **ways) for k in range(len(METHODS))
    ]
    worth = worth_of(ways_there)
    print(worth, flush=True)
    return {
        "curves": [way.curve for way in ways_there],
        "worth": dict(zip((m.label for m in METHODS), worth, strict=True)),
        "step_seconds": seconds,
    }


def step_seconds(lab: Lab, method: Method, steps: int, rate: float) -> float:
    """Mean seconds of a step, over periods, and all programs of a change compiled."""
    crew, warm = lab.crew(RELAXJAX), method.period + 1
    crew.begin(NAME, told_of(method, steps=steps, rate=rate))
    count = method.period * max(1, 10 // method.period)
    crew.steps(NAME, warm - warm % method.period + method.period)
    seconds = crew.steps(NAME, count).seconds
    if not method.alone:
        crew.take_over(NAME, told_of(METHODS[0], steps=steps, rate=rate))
    crew.end(NAME)
    return seconds


def worth_of(ways: Sequence[Journey]) -> list[float]:
    """Steps of the first training over those of each, to what all have reached."""
    loss = max(way.losses()[-1] for way in ways)
    first = ways[0].to(loss, 0)
    return [first / way.to(loss, 0) for way in ways]


def levels_of(found: Mapping[str, Any], phases: Sequence[Phase]) -> list[int]:
    """The place of the row that costs least, in each phase."""
    labels = [m.label for m in METHODS]

    def cost(rate: float, k: int) -> float:
        return found["step_seconds"][labels[k]][rate] / found["worth"][labels[k]]

    return [min(range(len(labels)), key=lambda k: cost(p.rate, k)) for p in phases]


def pilot_of(found: Mapping[str, Any], shape: Shape, mbit: float) -> Controller:
    """The autopilot, told of the first link and of what was measured of worth."""
    compute = found["step_seconds"][ALONE][mbit]
    shapes = jax.eval_shape(lambda: task(shape.width, shape.layers).params)
    model = plan.Model(params=shapes, compute=compute)
    network = plan.Network(
        workers=shape.hosts,
        link=Link(LATENCY, mbit * 1e6 / 8),
        codec=codecs(CODEC),
        joined=False,
        overlap=False,
    )
    ranked = plan.rank(model, network, quality="unmeasured").rows
    rows = [row for m in METHODS for row in ranked if row.label == m.label]
    how = {"worth": found["worth"], "dwell": _DWELL, "gain": _GAIN}
    return plan.autopilot(rows, model, network, **how)


def policies_of(
    found: Mapping[str, Any], phases: Sequence[Phase], pilot: Controller
) -> dict[str, Any]:
    """What is compared, by name: each makes a policy anew."""

    def always(k: int) -> Any:
        return lambda: fixed(k)

    def hindsight() -> Policy:
        return by_phase(levels_of(found, phases), phases)

    each = {m.label: always(k) for k, m in enumerate(METHODS)}
    return each | {HINDSIGHT: hindsight, AUTOPILOT: lambda: piloted(pilot)}


def compared(journeys: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Seconds of each to the loss, and over those of hindsight in the same round."""
    by_name: dict[str, dict[int, Any]] = {}
    for row in journeys:
        by_name.setdefault(row["name"], {})[row["round"]] = row
    best, rows = by_name.get(HINDSIGHT, {}), []
    for name, own in by_name.items():
        over = [own[i]["seconds"] / best[i]["seconds"] for i in own if i in best]
        rows.append(
            {
                "name": name,
                "seconds": median(row["seconds"] for row in own.values()),
                "steps": median(row["steps"] for row in own.values()),
                "over": over,
                "tables": [row["table"] for row in own.values()],
            }
        )
    return sorted(rows, key=lambda row: row["seconds"])


def verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """Whether the autopilot was near enough to hindsight in each round."""
    (own,) = (row for row in rows if row["name"] == AUTOPILOT)
    met = "met" if max(own["over"]) <= MOST else "missed"
    return f"{AUTOPILOT} over {HINDSIGHT}: at most {MOST} in each round is {met}"


def _report(run: Run, result: dict[str, Any]) -> Result:
    rows = compared(result["journeys"])
    table = Table.of(
        f"Seconds to a held-out loss of {result['loss']:.3f}",
        rows,
        "name",
        "seconds",
        "steps",
        ("over hindsight", lambda row: [round(x, 3) for x in row["over"]]),
        ("changes", lambda row: len(row["tables"][0]) - 1),
    )
    lines = {
        row["name"]: ([p[1] for p in row["curve"]], [p[2] for p in row["curve"]])
        for row in result["journeys"]
        if row["round"] == 0
    }
    axes = ("seconds", "held-out loss, nats")
    return run.finish(
        result | {"rows": rows},
        tables=[table],
        notes=[json.dumps({"worth": result["worth"]}), verdict(rows)],
        plots=[Plot("A link that changes", axes, lines)],
    )
