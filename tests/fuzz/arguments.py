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
HUGE = ("1" + "0" * 30, "9" * 400)
LONG = "a" * 300
NO_NAME = (
    *("", " ", "allreduce", "all_reduce+", "+", "all_reduce@", "@ring", "\x00", "é"),
    *("all_reduce+sign+", "all_reduce+sign+ef99", "gossip@ring@ring", "a" * 5000),
    *("all_reduce+sign@psum", "identity", "diloco++sign", "'; ls"),
)
NO_FILE = ("nowhere.py", "nowhere.py:x", "", ":", ".py", "/", ".", "\x00", "a\nb.py")
NO_FILE += (f"{LONG}.py", f"{LONG}.py:x", "ends.py:x", "/dev/null", "folder.py")
NO_PLACE = (LONG, "gs://b/r", "\x00", "script.py/x")
"""No folder or file can be made there."""
NO_RANKS = (
    *("", ":", "table:", "table:0", "table:0=x", "table:0=0", "table:5=1", "4"),
    *(
        "accordion",
        "accordion:",
        "accordion:low=1,high=2",
        "accordion:low=1,high=2,every=0",
    ),
    *(
        "accordion:low=1e9,high=1e300,every=3",
        "recorded:",
        "recorded:\x00",
        "recorded:/",
    ),
    *(
        "dion:rank=1",
        "accordion:low=nan,high=2,every=1",
        "table:0=99999999999999999999",
    ),
)
NO_CODES = (*NO_RANKS, "l_greco:rank=1,every=5", "table:0=99", "table:0=1.5")
NO_PERIODS = ("", "0", "-1", "x", "qsr:", "table:", "table:0=0", "table:5=4", "\x00")
NO_PERIODS += ("1.5", "stages:", "qsr:peaks=x", f"table:0={10**30}", "table:0=4,0=5")
NO_MERGE = ("", "x", "rule", "trimmed:b=x", "trimmed:", "clipped:cap=-1", "nearest:f=0")
NO_MERGE += ("median:b=1", "trimmed:b=" + "9" * 400, "clipped:cap=nan", "\x00")
FLAG = Option()
NAMES = Option(("all_reduce", "gossip+quantize8", "diloco", "local_sgd"), NO_NAME)

COMMANDS: dict[str, dict[str, Option]] = {
    "train": {
        "--relaxation": NAMES,
        "--workers": Option(("2", "4"), (*NO_COUNT, *HUGE, "1000000000")),
        "--task": Option(("digits",), NO_FILE),
        "--steps": Option(("3", "40"), (*NO_COUNT, *HUGE)),
        "--seed": Option(("0", "7"), (*NO_NUMBER, "-1", "1.5", "1" + "0" * 40)),
        "--batch-size": Option(("64", "128"), (*NO_COUNT, *HUGE, "1", "63")),
        "--learning-rate": Option(("0.1", "1e-3"), NOT_POSITIVE),
        "--bucket-mb": Option(("1", "0.5"), (*NOT_POSITIVE, "1e308", "1e9")),
        "--out": Option(("new",), (LONG, "gs://b/r", "script.py", "used", "\x00")),
        "--checkpoint-every": Option(("5",), (*NO_COUNT, *HUGE)),
        "--set": Option((), ("", "=", "x", "x=1", "rank=", "=3", "rank=x", "a=b=c")),
        "--order": Option((), ("", "tic-tac", "\x00", "TAC!")),
        "--accumulate": Option(("2",), (*NO_COUNT, *HUGE)),
        "--check-every": Option(("5",), (*NO_COUNT, *HUGE)),
        "--lost-after": Option(("15",), (*NOT_POSITIVE, "1e308")),
        "--stuck-after": Option(("300",), (*NOT_POSITIVE, "1e30")),
        "--periods": Option(("4", "table:0=4,100=16", "ada_comm:start=4"), NO_PERIODS),
        "--ranks": Option(
            (
                "table:0=2,9=1",
                "accordion:low=1,high=2,every=5",
                "l_greco:rank=1,every=5",
            ),
            NO_RANKS,
        ),
        "--codes": Option(
            ("table:0=8,9=4", "accordion:low=4,high=8,every=5"), NO_CODES
        ),
        "--merge": Option(("mean", "clipped", "trimmed:b=1"), NO_MERGE),
        "--resume": FLAG,
        "--force": FLAG,
        "--skip-nonfinite": FLAG,
        "--no-baseline": FLAG,
        "--json": FLAG,
    },
    "plan": {
        "--params": Option(
            ("1e6", "25000000", "40k", "1.5B"),
            (*NOT_POSITIVE, *HUGE, "1.5", "M", "1.2345k", "5T", "1e3k", "-1M"),
            True,
        ),
        "--compute-ms": Option(("20", "0.5"), (*NO_NUMBER, "-1", "inf", "1e30"), True),
        "--workers": Option(("2", "8"), (*NO_COUNT, *HUGE), True),
        "--bandwidth-gbps": Option(("1", "25"), (*NOT_POSITIVE, "1e308"), True),
        "--latency-ms": Option(("0", "0.05"), (*NO_NUMBER, "-1", "inf", "1e308")),
        "--window-mb": Option(("6",), (*NOT_POSITIVE, "1e308")),
        "--workers-per-host": Option(("2",), (*NO_COUNT, *HUGE, "3")),
        "--inside-gbps": Option(("800",), (*NOT_POSITIVE, "1e308")),
        "--inside-latency-ms": Option(("0.01",), (*NO_NUMBER, "-1", "1e308")),
        "--codec-gbs": Option(("200",), (*NOT_POSITIVE, "1e308")),
        "--network": Option((), (*NO_FILE, "deep.json", "pipe.json")),
        "--bucket-mb": Option(("8",), (*NOT_POSITIVE, "1e308")),
        "--criterion": Option(("fastest",), ("", "cheapest", "\x00")),
        "--quality": Option(("close",), ("", "good", "\x00")),
        "--memory-gb": Option(("80", "inf"), (*NO_NUMBER, "0", "-1")),
        "--merge": Option(("mean", "clipped", "trimmed:b=1"), (*NO_MERGE, "rda")),
        "--tensor": Option(("4",), (*NO_COUNT, *HUGE)),
        "--expert": Option(("8",), (*NO_COUNT, *HUGE)),
        "--pipeline": Option(("2",), (*NO_COUNT, *HUGE)),
        "--layers": Option(("12",), (*NO_COUNT, *HUGE)),
        "--width": Option(("1024",), (*NO_COUNT, *HUGE)),
        "--tokens": Option(("8192",), (*NO_COUNT, *HUGE)),
        "--experts-per-token": Option(("2",), (*NO_COUNT, *HUGE)),
        "--expert-params": Option(("0.5",), (*NO_NUMBER, "-1", "2", "inf")),
        "--top": Option(("3",), NO_COUNT),
        "--chart": Option((), (*NO_PLACE, ".", "nowhere/x.png")),
        "--overlap": FLAG,
        "--no-overlap": FLAG,
        "--sharded": FLAG,
        "--xla-flags": FLAG,
        "--json": FLAG,
    },
    "compare": {
        "": Option(("digits",), NO_FILE, True),
        "--relaxation": NAMES,
        "--seeds": Option(("2",), (*NO_COUNT, *HUGE)),
        "--tune": Option(("2",), ("", "=", "0", "-1", "x", "rank=", "rank=x", "3000")),
        "--workers": Option(("4",), (*NO_COUNT, *HUGE)),
        "--network": Option(
            ("1gbit,10ms",), ("", "1gbit", ",", "fast,1ms", "-1gbit,1ms")
        ),
        "--steps": Option(("5",), (*NO_COUNT, *HUGE)),
        "--batch-size": Option(("64",), (*NO_COUNT, *HUGE, "63")),
        "--compute-ms": Option(("20",), (*NOT_POSITIVE, "1e30")),
        "--target": Option(("0.9",), (*NO_NUMBER, "inf")),
        "--budget": Option(("30m",), ("", "m", "30", "-1m", "1.2.3s", "1y")),
        "--out": Option(("new",)),
        "--seeds-at-once": Option(("2",), (*NO_COUNT, *HUGE)),
        "--skeleton": Option((), (*NO_PLACE, "script.py", "nowhere/x.py")),
        "--shard": Option(("1/1",), ("", "0/1", "2/1", "1", "a/b", "1/0", "-1/2")),
    },
    "explain": {
        "": NAMES._replace(needed=True),
        "--workers": Option(("4",), (*NO_COUNT, *HUGE, "129")),
        "--task": Option(("digits",), ("", "words", "\x00")),
        "--periods": Option(("4", "table:0=4,100=16"), NO_PERIODS),
        "--ranks": Option(("table:0=2,9=1",), (*NO_RANKS, "l_greco:rank=1,every=5")),
        "--codes": Option(("table:0=8,9=4",), NO_CODES),
        "--merge": Option(("mean", "clipped", "trimmed:b=1"), NO_MERGE),
        "--json": FLAG,
    },
    "order": {
        "": Option(("loss.py:loss",), NO_FILE, True),
        "--mode": Option(("train",), ("", "backward")),
        "--gbps": Option(("10", "inf"), (*NO_NUMBER, "0", "-1", "1e-300")),
        "--latency-us": Option(("50",), (*NO_NUMBER, "-1", "1e308")),
        "--tflops": Option(("10",), (*NO_NUMBER, "0", "1e-300")),
        "--memory-gbs": Option(("500",), (*NO_NUMBER, "0", "1e-300")),
        "--random-orders": Option(("3",), (*NO_COUNT, *HUGE)),
        "--trace": Option((), (*NO_PLACE, ".", "nowhere/x.json")),
        "--png": Option((), (*NO_PLACE, ".", "nowhere/x.png")),
        "--json": FLAG,
    },
    "check": {
        "": Option(("loss.py",), NO_FILE, True),
        "--skeleton": Option((), ("", "optimizer")),
        "--steps": Option(("0",), (*NO_NUMBER, *HUGE, "-1", "1.5")),
        "--draws": Option(("100",), (*NO_NUMBER, *HUGE, "99")),
        "--codec-mb": Option(("1",), (*NO_NUMBER, "0", "1e9")),
        "--out": Option(("new",), ("gs://b/r",)),
        "--json": FLAG,
    },
    "run": {
        "-n": Option(("2",), (*NO_COUNT, *HUGE)),
        "--devices": Option(("1",), (*NO_COUNT, *HUGE)),
        "--rate": Option((), ("", "fast", "-1mbit", "1", "mbit", "9" * 400 + "gbit")),
        "--grace": Option(("1",), (*NO_NUMBER, "-1", "1e308", "inf")),
        "": Option(("script.py",), ("nowhere.py", "", "/", ".", "\x00", LONG), True),
    },
    "islands": {
        "-n": Option(("2",), (*NO_COUNT, *HUGE)),
        "--processes": Option(("1",), (*NO_COUNT, *HUGE)),
        "--carrier": Option(("folder:islands",), ("", "x", f"folder:{LONG}")),
        "--html": Option((), ("new", *NO_PLACE)),
        "--watch": FLAG,
        "--emulated": FLAG,
        "--spares": FLAG,
        "": Option(("script.py",), ("nowhere.py", "", "/", "\x00", LONG), True),
    },
    "islands status": {"": Option((), (*NO_PLACE, "used", "script.py", "", "."), True)},
    "islands replay": {"": Option((), (*NO_PLACE, "used", "script.py", "", "."), True)},
}
"""The options of each command; "" is its argument."""


FILES = {
    "script.py": "",
    "ends.py": "raise SystemExit(0)\n",
    "deep.json": "[" * 100_000,
    "used/run.json": "{}",
    "folder.py/file": "",
    "loss.py": "def loss(params, x=2.0):\n    return params['w'] ** 2 * x\n\n\n"
    "def loss_args():\n    return {'w': 1.0}, 2.0\n",
}
"""Files that are there; beside them, `pipe.json` is a pipe that nobody writes to."""


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
    arguments = command.split()
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
