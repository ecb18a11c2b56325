"""`python -m benchmarks NAME`, from a clone, with the extra `cli`.

Each benchmark is imported when it is run; `--help` reads files, and imports no JAX.
"""

import ast
import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup
from typer.main import get_command

BENCHMARKS = {
    "startup": "micro.startup:startup",
    "first-step": "micro.first_step:first_step",
    "growth": "micro.growth:growth",
    "overhead": "micro.overhead:overhead",
    "fusion": "micro.fusion:fusion",
    "checkpoint": "micro.checkpoint:checkpoint",
    "ring": "micro.ring:ring",
    "algorithms": "micro.algorithms:algorithms",
    "emulation": "micro.emulation:emulation",
    "bytes": "micro.bytes:count_bytes",
    "codecs": "micro.codecs:codecs",
    "payloads": "micro.payloads:payloads",
    "low-rank": "micro.low_rank:low_rank",
    "crossing": "crossing.study:crossing",
    "quality-at-bytes": "training.study:quality",
    "screen": "training.study:screen",
    "frontier": "training.study:frontier",
    "recent": "training.study:recent",
    "methods": "training.study:methods",
    "later": "training.study:later",
    "heterogeneity": "training.heterogeneity:heterogeneity",
    "rules": "training.rules:rules",
    "decided": "training.decided:decided",
    "remembered": "training.remembered:remembered",
    "codes-of-weights": "training.weights:codes_of_weights",
    "split-quality": "training.split_quality:split_quality",
    "evidence": "training.study:evidence",
    "published": "planning.published:published",
    "regret": "planning.regret:regret",
    "planned": "planning.planned:planned",
    "overlap": "programs.overlap:overlap",
    "sharded": "programs.sharded:sharded",
    "split": "programs.split_model:split",
    "pulls": "programs.pulls:pulls",
    "host-copies": "programs.host_copies:host_copies",
    "host-params": "programs.host_params:host_params",
    "network": "network.study:network",
    "products": "network.products:products",
    "changing-link": "network.changing:changing",
    "testbed": "testbed.study:study",
}
ORDERS = {
    "quality": "orders.quality:quality",
    "speed": "orders.speed:speed",
    "throughput": "orders.throughput:throughput",
    "scale": "orders.scale:scale",
}
ISLANDS = {
    "chaos": "islands.chaos:chaos",
    "wrong-member": "islands.wrong_member:wrong_member",
}
"""Modules below this one, and the functions in them, by the names of their commands."""
GROUPS = {"orders": ORDERS, "islands": ISLANDS}
FOLDER = Path(__file__).parent


class LazyCommands(TyperGroup):
    """Imports a benchmark's module when it is run or asked for its help."""

    def resolve_command(
        self, ctx: Any, args: list[str]
    ) -> tuple[str | None, Any, list[str]]:
        """The command that the arguments name, and the arguments that remain."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name, BENCHMARKS) if name in BENCHMARKS else command, rest


def load(name: str, table: Mapping[str, str]) -> Any:
    """The command itself, where the table has only its name and a line of help."""
    module, _, function = table[name].partition(":")
    benchmark = getattr(import_module(f"benchmarks.{module}"), function)
    single = typer.Typer(add_completion=False)
    single.command(name)(benchmark.command)
    return get_command(single)


def summary(target: str) -> str:
    """The first line of a benchmark's docstring, read without importing it."""
    module, _, name = target.partition(":")
    text = FOLDER.joinpath(*module.split(".")).with_suffix(".py").read_text()
    named = {getattr(node, "name", None): node for node in ast.parse(text).body}
    function = named[name]
    assert isinstance(function, ast.FunctionDef)
    return (ast.get_docstring(function) or "").partition("\n")[0]


def _stdout_for_json(context: typer.Context, asked: bool) -> TextIO | None:
    """Where JSON goes; all else that is printed goes to stderr then."""
    if not asked:
        return None
    stdout = sys.stdout
    context.with_resource(redirect_stdout(sys.stderr))
    return stdout


def _print_json(result: Any, as_json: TextIO | None) -> None:
    """Prints what a benchmark returns, where the user asks for it."""
    if as_json:
        print(json.dumps(result), file=as_json)


app = typer.Typer(
    cls=LazyCommands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    result_callback=_print_json,
)
for _name, _target in BENCHMARKS.items():
    app.command(_name, help=summary(_target))(lambda: None)
_PARTS = {"allow_extra_args": True, "allow_interspersed_args": False}


def group(name: str, title: str, table: Mapping[str, str]) -> None:
    """A command that runs one or several of the benchmarks that it names."""
    lines = "\n".join(f"{key:11}{summary(target)}" for key, target in table.items())

    @app.command(
        name,
        help=f"{title}: one or several of these, each with its options.\n\n\b\n{lines}",
        context_settings=_PARTS,
        options_metavar="NAME [OPTIONS]...",
        no_args_is_help=True,
    )
    def run(context: typer.Context) -> dict[str, Any]:
        words, parts = context.args, []
        while words:
            if words[0] not in table:
                known = ", ".join(table)
                raise typer.BadParameter(f"{words[0]!r} is not one of {known}")
            command = load(words[0], table)
            part = command.make_context(words[0], words[1:], parent=context, **_PARTS)
            parts.append(part)
            words = part.args
        return {part.info_name: part.command.invoke(part) for part in parts}


group("orders", "Orders of transfers", ORDERS)
group("islands", "Processes that may be killed", ISLANDS)


@app.callback()
def begin(
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", callback=_stdout_for_json, help="JSON alone on stdout, as saved."
        ),
    ] = False,
) -> None:
    """Benchmarks: each prints its conditions and tables, and saves JSON and plots."""


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
