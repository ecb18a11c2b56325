"""What a user's file defines, found by what its functions say they return.

    def my_code() -> Compressor
    def my_graph(workers) -> Topology
    def my_relaxation(axis_name) -> optax.GradientTransformation
    def my_optimizer(axis_name, optimizer) -> optax.GradientTransformation

Required parameters are given by their names: `axis_name`, `workers` (or `n`) and
`optimizer`. A transformation without `optimizer` comes before one. Three optional names
of the file:

    CHECK   {name: function}: only these, annotated or not
    CLAIMS  {name: words}: what a relaxation or topology claims, if not the usual
    BYTES   {name: function}: closed forms, of a payload of `size` elements, or of a
            step for `size` elements and `workers`
"""

import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import optax

from relaxjax.check import _relaxation, _topology
from relaxjax.compression import Compressor
from relaxjax.topology import Topology

AXIS = "data"
_PROBE = 8  # workers for whom a thing is made to see what it is
_KINDS = {
    "Compressor": "compressor",
    "Topology": "topology",
    "GradientTransformation": "relaxation",
    "GradientTransformationExtraArgs": "relaxation",
}
_CLAIMS: Mapping[str, tuple[str, ...]] = {
    "compressor": (),
    "topology": _topology.CLAIMS,
    "relaxation": _relaxation.CLAIMS,
}
_LOOKED_FOR = (
    "a function with the return annotation Compressor, Topology or "
    "optax.GradientTransformation, or CHECK = {name: function}; "
    "`relaxjax check --skeleton compressor` writes a file to begin with"
)


class Subject(NamedTuple):
    """A thing to check.

    Attributes:
      name: of the function, or as CHECK has it.
      kind: `"compressor"`, `"topology"` or `"relaxation"`.
      make: `make(workers, optimizer)`: a compressor or topology, or the whole
        transformation.
      whole: whether a relaxation holds its optimizer itself.
      claims: what it claims beyond its declarations.
      stated: closed form of its bytes; None: none is given.
    """

    name: str
    kind: str
    make: Callable[..., Any]
    whole: bool
    claims: tuple[str, ...]
    stated: Callable[..., int] | None

    def graph(self, workers: int) -> Topology:
        """A topology's."""
        return self.make(workers, None)

    def compressor(self) -> Compressor:
        """A compressor's."""
        return self.make(_PROBE, None)


def subjects_of(module: ModuleType) -> list[Subject]:
    """The things that a file defines.

    Args:
      module: the file, imported.

    Raises:
      ValueError: there is none; one cannot be made, or is of no known kind; CLAIMS or
        BYTES name something else.
    """
    functions = getattr(module, "CHECK", None)
    if functions is None:
        functions = _announced(module)
    if not isinstance(functions, Mapping) or not functions:
        raise ValueError(
            f"{module.__name__}.py defines nothing to check: {_LOOKED_FOR}"
        )
    claims, stated = (_table(module, x, functions) for x in ("CLAIMS", "BYTES"))
    return [
        _subject(name, function, claims.get(name), stated.get(name))
        for name, function in functions.items()
    ]


def _announced(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """Public functions of the file itself that say they return one of the kinds."""
    return {
        name: function
        for name, function in vars(module).items()
        if inspect.isfunction(function) and function.__module__ == module.__name__
        if not name.startswith("_") and _returns(function) in _KINDS
    }


def _returns(function: Callable[..., Any]) -> str:
    """The last part of the return annotation's name."""
    hint = inspect.signature(function).return_annotation
    return (hint if isinstance(hint, str) else getattr(hint, "__name__", "")).split(
        "."
    )[-1]


def _table(
    module: ModuleType, table: str, names: Mapping[str, Any]
) -> Mapping[str, Any]:
    given = getattr(module, table, {})
    for name in given:
        if name not in names:
            raise ValueError(
                f"{table} of {module.__name__}.py names {name!r}, and what is checked "
                f"is {', '.join(names)}"
            )
    return given


def _subject(name: str, function: Any, claims: Any, stated: Any) -> Subject:
    if not callable(function):
        raise ValueError(
            f"CHECK[{name!r}] is {type(function).__name__}: it must be a function that "
            "makes what is checked, such as lambda: it"
        )
    make, whole = _maker(name, function)
    try:
        thing = make(_PROBE, optax.identity())
    except Exception as error:  # whatever the user's function raises
        raise ValueError(
            f"{name}: it raised {type(error).__name__} for {_PROBE} workers: {error}"
        ) from error
    kind = _kind(thing)
    if kind is None:
        raise ValueError(
            f"{name} returned {type(thing).__name__}, which is none of Compressor, "
            "Topology and optax.GradientTransformation"
        )
    usual = () if whole else _CLAIMS[kind]
    claims = usual if claims is None else tuple(claims)
    for claim in claims:
        if claim not in _CLAIMS[kind]:
            raise ValueError(
                f"CLAIMS[{name!r}] has {claim!r}; a {kind} may claim "
                f"{', '.join(_CLAIMS[kind]) or 'nothing, its law declares'}"
            )
    return Subject(name, kind, make, whole, claims, stated)


def _kind(thing: Any) -> str | None:
    if isinstance(thing, Compressor):
        return "compressor"
    if isinstance(thing, Topology):
        return "topology"
    return "relaxation" if isinstance(thing, optax.GradientTransformation) else None


def _maker(name: str, function: Callable[..., Any]) -> tuple[Callable[..., Any], bool]:
    """The function with its required parameters filled in, and whether it optimizes."""
    parameters = inspect.signature(function).parameters.values()
    needed = [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    for parameter in needed:
        if parameter not in ("axis_name", "workers", "n", "optimizer"):
            raise ValueError(
                f"{name} needs {parameter!r}, and only axis_name, workers (or n) and "
                "optimizer are given by their names: give it a default"
            )

    def make(workers: int, optimizer: optax.GradientTransformation | None) -> Any:
        known = {
            "axis_name": AXIS,
            "workers": workers,
            "n": workers,
            "optimizer": optimizer,
        }
        made = function(**{p: known[p] for p in needed})
        before = _kind(made) == "relaxation" and "optimizer" not in needed
        return optax.chain(made, optimizer) if before and optimizer else made

    return make, "optimizer" in needed
