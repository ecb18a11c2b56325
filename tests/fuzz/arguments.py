"""Command lines: for each option values that are right, and values that never are."""

import random
from typing import NamedTuple


class Option(NamedTuple):
    """Values of one option; a flag has none. Some options must be there."""

    right: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    needed: bool = False


NO_NUMBER = ("", "x", "nan", "1e", "\x00", "--", "½", "0x10", "1_0_", "[1]")
NO_COUNT = (*NO_NUMBER, "0", "-1", "1.5", "1e400", "-9" + "9" * 30)
NOT_POSITIVE = (*NO_NUMBER, "0", "-1", "inf", "-inf", "-0.0")
NO_NAME = (
    *("", " ", "allreduce", "all_reduce+", "+", "all_reduce@", "@ring", "\x00", "é"),
    *("all_reduce+sign+", "all_reduce+sign+ef99", "gossip@ring@ring", "a" * 5000),
    *("all_reduce+sign@psum", "identity", "diloco++sign", "'; ls"),
)
NO_FILE = ("nowhere.py", "nowhere.py:x", "", ":", ".py", "/", ".", "\x00", "a\nb.py")
FLAG = Option()
NAMES = Option(("all_reduce", "gossip+quantize8", "diloco", "local_sgd"), NO_NAME)

COMMANDS: dict[str, dict[str, Option]] = {
    "train": {
        "--relaxation": NAMES,
        "--workers": Option(("2", "4"), (*NO_COUNT, "1000000000")),
        "--task": Option(("digits",), NO_FILE),
        "--steps": Option(("3", "40"), NO_COUNT),
        "--seed": Option(("0", "7"), (*NO_NUMBER, "-1", "1.5", "1" + "0" * 40)),
        "--batch-size": Option(("64", "128"), (*NO_COUNT, "1", "63")),
        "--learning-rate": Option(("0.1", "1e-3"), NOT_POSITIVE),
        "--bucket-mb": Option(("1", "0.5"), NOT_POSITIVE),
        "--set": Option((), ("", "=", "x", "x=1", "rank=", "=3", "rank=x", "a=b=c")),
        "--order": Option((), ("", "tic-tac", "\x00", "TAC!")),
        "--accumulate": Option(("2",), NO_COUNT),
        "--check-every": Option(("5",), NO_COUNT),
        "--lost-after": Option(("15",), NOT_POSITIVE),
        "--stuck-after": Option(("300",), NOT_POSITIVE),
        "--skip-nonfinite": FLAG,
        "--no-baseline": FLAG,
        "--json": FLAG,
    },
    "plan": {
        "--params": Option(("1e6", "25000000"), (*NOT_POSITIVE, "1.5"), True),
        "--compute-ms": Option(("20", "0.5"), (*NO_NUMBER, "-1", "inf"), True),
        "--workers": Option(("2", "8"), NO_COUNT, True),
        "--bandwidth-gbps": Option(("1", "25"), NOT_POSITIVE, True),
        "--latency-ms": Option(("0", "0.05"), (*NO_NUMBER, "-1", "inf")),
        "--window-mb": Option(("6",), NOT_POSITIVE),
        "--workers-per-host": Option(("2",), (*NO_COUNT, "3")),
        "--codec-gbs": Option(("200",), NOT_POSITIVE),
        "--network": Option((), NO_FILE),
        "--bucket-mb": Option(("8",), NOT_POSITIVE),
        "--criterion": Option(("fastest",), ("", "cheapest", "\x00")),
        "--quality": Option(("close",), ("", "good", "\x00")),
        "--memory-gb": Option(("80", "inf"), (*NO_NUMBER, "0", "-1")),
        "--top": Option(("3",), NO_COUNT),
        "--json": FLAG,
    },
    "compare": {
        "": Option(("digits",), NO_FILE, True),
        "--relaxation": NAMES,
        "--seeds": Option(("2",), NO_COUNT),
        "--tune": Option(("2",), ("", "=", "0", "-1", "x", "rank=", "rank=x", "=1")),
        "--workers": Option(("4",), NO_COUNT),
        "--network": Option(
            ("1gbit,10ms",), ("", "1gbit", ",", "fast,1ms", "-1gbit,1ms")
        ),
        "--steps": Option(("5",), NO_COUNT),
        "--batch-size": Option(("64",), (*NO_COUNT, "63")),
        "--compute-ms": Option(("20",), NOT_POSITIVE),
        "--target": Option(("0.9",), (*NO_NUMBER, "inf")),
        "--budget": Option(("30m",), ("", "m", "30", "-1m", "1.2.3s", "1y")),
        "--shard": Option(("1/1",), ("", "0/1", "2/1", "1", "a/b", "1/0", "-1/2")),
    },
    "explain": {
        "": NAMES._replace(needed=True),
        "--workers": Option(("4",), NO_COUNT),
        "--task": Option(("digits",), ("", "words", "\x00")),
        "--json": FLAG,
    },
    "order": {
        "": Option(("loss.py:loss",), NO_FILE, True),
        "--mode": Option(("train",), ("", "backward")),
        "--gbps": Option(("10", "inf"), (*NO_NUMBER, "0", "-1")),
        "--latency-us": Option(("50",), (*NO_NUMBER, "-1")),
        "--random-orders": Option(("3",), NO_COUNT),
        "--json": FLAG,
    },
    "check": {
        "": Option(("loss.py",), NO_FILE, True),
        "--skeleton": Option((), ("", "optimizer")),
        "--steps": Option(("0",), (*NO_NUMBER, "-1", "1.5")),
        "--draws": Option(("100",), (*NO_NUMBER, "99")),
        "--codec-mb": Option(("1",), (*NO_NUMBER, "0", "1e9")),
    },
    "run": {
        "-n": Option(("2",), NO_COUNT),
        "--devices": Option(("1",), NO_COUNT),
        "--rate": Option((), ("", "fast", "-1mbit", "1", "mbit", "1e3mbit ")),
        "--grace": Option(("1",), (*NO_NUMBER, "-1")),
        "": Option(("script.py",), ("nowhere.py", "", "/", ".", "\x00"), True),
    },
}
"""The options of each command; "" is its argument."""


FILES = {
    "script.py": "",
    "loss.py": "def loss(params, x=2.0):\n    return params['w'] ** 2 * x\n\n\n"
    "def loss_args():\n    return {'w': 1.0}, 2.0\n",
}
"""Files that right values name."""


class Line(NamedTuple):
    """A command line, and the argument that must not be accepted, if there is one."""

    arguments: list[str]
    wrong: str | None


def line(rng: random.Random) -> Line:
    """A command, what it needs and some options; in every other line one is wrong.

    The wrong one is alone, so that nothing else can be why it was refused.
    """
    command = rng.choice(list(COMMANDS))
    options = COMMANDS[command]
    chosen = {n for n, o in options.items() if o.needed}
    chosen |= set(rng.sample(list(options), rng.randint(0, min(5, len(options)))))
    able = [name for name in options if options[name].wrong]
    wrong = rng.choice(able) if rng.random() < 0.5 else None
    arguments = [command]
    chosen |= {wrong} if wrong is not None else set()
    for name in sorted(chosen, reverse=True):
        option = options[name]
        values = option.wrong if name == wrong else option.right
        if option == FLAG:
            arguments.append(name)
        elif values and name in ("", "-n"):
            arguments += [name, rng.choice(values)][not name :]
        elif values:
            arguments.append(f"{name}={rng.choice(values)}")
    return Line(arguments, wrong)
