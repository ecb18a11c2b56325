"""What a user's file defines, found by the return annotations of its functions.

    def my_compressor() -> Compressor
    def my_graph(workers) -> Topology
    def my_relaxation(axis_name) -> optax.GradientTransformation
    def my_optimizer(axis_name, optimizer) -> optax.GradientTransformation

Required parameters are given by their names: `axis_name`, `workers` (or `n`) and
`optimizer`. A transformation without `optimizer` comes before one. Three optional names
of the file:

    CHECK   {name: function}: check only these, annotated or not
    CLAIMS  {name: words}: what a relaxation or topology claims, if not the default
    BYTES   {name: function}: closed forms of the bytes of a payload of `size` elements,
            or of a step for `size` elements and `workers`
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import optax

from relaxjax.compression import Compressor
from relaxjax.topology import Topology

AXIS = "data"
_PROBE = 8  # number of workers for which a thing is made, to see what it is
_KINDS = {
    Compressor: "compressor",
    Topology: "topology",
    optax.GradientTransformation: "relaxation",
    optax.GradientTransformationExtraArgs: "relaxation",
}
CLAIMS: Mapping[str, tuple[str, ...]] = {
    "compressor": (),
    "topology": ("rows", "columns"),
    "relaxation": ("same", "mean", "alone"),
}
_LOOKED_FOR = (
    "a function with the return annotation Compressor, Topology or "
    "optax.GradientTransformation, or CHECK = {name: function}; "
    "`relaxjax check --skeleton compressor` writes a file to begin with"
)


class Subject(NamedTuple):
    """A thing to check.

    Attributes:
      name: the name of the function, or its name in CHECK.
      kind: `"compressor"`, `"topology"` or `"relaxation"`.
      make: `make(workers, optimizer)` returns a compressor, a topology, or the whole
        transformation.
      claims: what it claims beyond its declarations.
      stated: closed form of its bytes, or None.
    """

    name: str
    kind: str
    make: Callable[..., Any]
    claims: tuple[str, ...]
    stated: Callable[..., int] | None

    def graph(self, workers: int) -> Topology:
        """The topology, for a number of workers."""
        return self.make(workers, None)

    def compressor(self) -> Compressor:
        """The compressor."""
        return self.make(_PROBE, None)


def subjects_of(module: ModuleType) -> list[Subject]:
    """The things that a file, imported as a module, defines.

    Raises:
      ValueError: it defines nothing to check; a thing cannot be made, or is of no known
        kind; CLAIMS or BYTES name something else.
    """
    functions = getattr(module, "CHECK", None)
    functions = _annotated(module) if functions is None else functions
    if not isinstance(functions, Mapping) or not functions:
        raise ValueError(
            f"{module.__name__}.py defines nothing to check. Write {_LOOKED_FOR}"
        )
    claims, stated = (_table(module, x, functions) for x in ("CLAIMS", "BYTES"))
    return [
        _subject(name, function, claims.get(name), stated.get(name))
        for name, function in functions.items()
    ]


def _annotated(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """Public functions of the file itself whose annotation says one of the kinds."""
    kinds = {kind.__name__ for kind in _KINDS}
    return {
        name: function
        for name, function in vars(module).items()
        if inspect.isfunction(function) and function.__module__ == module.__name__
        if not name.startswith("_") and _returns(function) in kinds
    }


def _returns(function: Callable[..., Any]) -> str:
    """The last part of the return annotation's name."""
    hint = inspect.signature(function).return_annotation
    name = hint if isinstance(hint, str) else getattr(hint, "__name__", "")
    return name.split(".")[-1]


def _table(
    module: ModuleType, table: str, names: Mapping[str, Any]
) -> Mapping[str, Any]:
    rows = getattr(module, table, {})
    for name in rows:
        if name not in names:
            raise ValueError(
                f"{table} of {module.__name__}.py names {name!r}, which is not among "
                f"what is checked: {', '.join(names)}"
            )
    return rows


def require_claims(where: str, kind: str, claims: Collection[str]) -> None:
    """Refuses claims of which no law knows, and which would hold unseen."""
    for claim in claims:
        if claim not in CLAIMS[kind]:
            raise ValueError(
                f"{where} has {claim!r}; a {kind} may claim "
                f"{', '.join(CLAIMS[kind]) or 'nothing: its law declares all'}"
            )


def _subject(name: str, function: Any, claims: Any, stated: Any) -> Subject:
    if not callable(function):
        raise ValueError(
            f"CHECK[{name!r}] is {type(function).__name__}: it must be a function that "
            "makes what is checked, such as lambda: it"
        )
    make, whole = _maker(name, function)
    try:
        thing = make(_PROBE, optax.identity())
    except (Exception, SystemExit) as error:  # whatever the user's function raises
        raise ValueError(
            f"{name}: it raised {type(error).__name__} for {_PROBE} workers: {error}"
        ) from error
    kind = _kind(thing)
    if kind is None:
        raise ValueError(
            f"{name} returned {type(thing).__name__}, which is not a Compressor, a "
            "Topology or an optax.GradientTransformation"
        )
    default = () if whole else CLAIMS[kind]
    claims = default if claims is None else tuple(claims)
    require_claims(f"CLAIMS[{name!r}]", kind, claims)
    return Subject(name, kind, make, claims, stated)


def _kind(thing: Any) -> str | None:
    return next(
        (name for kind, name in _KINDS.items() if isinstance(thing, kind)), None
    )


def _maker(name: str, function: Callable[..., Any]) -> tuple[Callable[..., Any], bool]:
    """`Subject.make` of a function, and whether the function takes an optimizer."""
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
                "optimizer are passed, by their names: give it a default"
            )

    def make(workers: int, optimizer: optax.GradientTransformation | None) -> Any:
        known = {"axis_name": AXIS, "workers": workers, "n": workers}
        known |= {"optimizer": optimizer}
        thing = function(**{p: known[p] for p in needed})
        before = _kind(thing) == "relaxation" and "optimizer" not in needed
        return optax.chain(thing, optimizer) if before and optimizer else thing

    return make, "optimizer" in needed
