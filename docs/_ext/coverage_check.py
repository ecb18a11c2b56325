"""Fails the build when a public name is documented nowhere, or has no docstring."""

import importlib
import inspect
import pkgutil
from types import ModuleType

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError

import relaxjax

# Packages for the command line, whose users type words and not names.
NOT_AN_API = {"relaxjax.cli", "relaxjax.tasks"}


def doors() -> list[ModuleType]:
    packages = [
        importlib.import_module(f"relaxjax.{info.name}")
        for info in pkgutil.iter_modules(relaxjax.__path__)
        if info.ispkg and not info.name.startswith("_")
        if f"relaxjax.{info.name}" not in NOT_AN_API
    ]
    return [relaxjax, *packages]


def public_names() -> set[str]:
    found = {
        f"{door.__name__}.{name}": getattr(door, name)
        for door in doors()
        for name in door.__all__
        if not inspect.ismodule(getattr(door, name)) and not name.startswith("__")
        if door is relaxjax or name not in relaxjax.__all__  # documented once
    }
    of_ps = {id(x) for name, x in found.items() if name.startswith("relaxjax.ps.")}
    return {
        name
        for name, x in found.items()
        if not (name.startswith("relaxjax.fsdp.") and id(x) in of_ps)
    }


def check(app: Sphinx, env: BuildEnvironment) -> None:
    documented = {entry[0] for entry in env.get_domain("py").get_objects()}
    missing = sorted(public_names() - documented)
    silent = sorted(
        f"{door.__name__}.{name}"
        for door in doors()
        for name in door.__all__
        # A type alias cannot have one; its page describes it.
        if inspect.isclass(getattr(door, name))
        or inspect.isroutine(getattr(door, name))
        if not inspect.getdoc(getattr(door, name))
    )
    if missing or silent:
        raise ExtensionError(
            f"public names that no page documents: {missing}; "
            f"public names without a docstring: {silent}"
        )


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True}
