"""A command that takes its options as one record, whose fields declare them.

    @dataclass(frozen=True, kw_only=True)
    class Options:
        script: str = argument("A Python script.", default=...)
        processes: int = option("Number of processes.", "-n", default=2)

    @takes(Options)
    def run(options: Options) -> None: ...

Nothing is listed twice between a command line and the code.
"""

from collections.abc import Callable
from dataclasses import MISSING, field, fields
from functools import wraps
from inspect import Parameter, Signature
from typing import Any, TypeVar

import typer

Options = TypeVar("Options")


def option(text: str, *names: str, default: Any = None, **how: Any) -> Any:
    """A field with its help, and what `typer.Option` takes; `...`: it must be given."""
    return _field(default, typer.Option(default, *names, help=text, **how))


def argument(text: str, *, default: Any = None, **how: Any) -> Any:
    """Likewise a field that is given by its place."""
    return _field(default, typer.Argument(default, help=text, **how))


def _field(default: Any, declared: Any) -> Any:
    known = MISSING if default is ... else default
    return field(default=known, metadata={"declared": declared})


def takes(
    options: type[Options],
) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Makes a function of a record of options a function of the options themselves."""
    record: Any = options  # a dataclass, for which Python has no type
    declared = [
        Parameter(
            one.name,
            Parameter.KEYWORD_ONLY,
            default=one.metadata["declared"],
            annotation=one.type,
        )
        for one in fields(record)
    ]

    def decorate(command: Callable[[Options], None]) -> Callable[..., None]:
        @wraps(command)
        def of_options(**given: Any) -> None:
            command(options(**given))

        vars(of_options)["__signature__"] = Signature(declared)
        return of_options

    return decorate
