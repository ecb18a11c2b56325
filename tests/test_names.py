"""Public names: each is there, is imported late, and is what its module has."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import relaxjax
from scripts import stubs

TABLE = stubs.tables(Path(relaxjax.__file__))[0]
HOMES = {name: home for home, names in TABLE.items() for name in names.split()}


def test_every_name_has_a_home():
    assert sorted(relaxjax.__all__) == sorted(HOMES) == dir(relaxjax)


@pytest.mark.parametrize("name", sorted(HOMES))
def test_a_name_is_what_its_module_has(name: str):
    home = importlib.import_module(f"relaxjax.{HOMES[name] or name}")
    assert getattr(relaxjax, name) is (getattr(home, name) if HOMES[name] else home)


def test_other_names_are_errors():
    with pytest.raises(AttributeError, match="no attribute 'allreduce'"):
        getattr(relaxjax, "all" + "reduce")


def test_nothing_is_imported_before_it_is_asked_for():
    code = "import sys, relaxjax; print([m for m in sys.modules if 'relaxjax.' in m])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    rooms = "decentralized", "faults", "gradients", "local_updates", "programs"
    doors = [f"relaxjax.{room}" for room in (*rooms, "workers")]
    assert ast.literal_eval(done.stdout) == [
        "relaxjax._core",
        "relaxjax._core._lazy",
        *doors,  # which have names, and nothing else
    ]


@pytest.mark.long
def test_what_people_paste_needs_no_other_import():
    """Packages by attribute, each before the others, and the lines of a plan."""
    from relaxjax import plan

    network = plan.Network(workers=4)
    lines = [
        row.tx for row in plan.rank(plan.Model.of_size(9, compute=1), network).rows
    ]
    packages = [name for name, home in HOMES.items() if not home]
    assert {"check", "compression", "hosts", "plan", "schedule"} <= set(packages)
    start = "import jax.numpy as jnp, optax, relaxjax\noptimizer = optax.sgd(0.1)\n"
    codes = [start + line for line in lines if "compression" in line][:1]
    forget = "[sys.modules.pop(m) for m in [*sys.modules] if m.startswith('relaxjax')]"
    codes += [
        f"import relaxjax; relaxjax.{name}.__all__; {forget}" for name in packages
    ]
    # Programs one after the other, each of which finds none of the package imported.
    whole = "\n".join(["import sys", *codes[1:], codes[0]])
    done = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_is_experimental_says_so_and_stands_on_the_page():
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text()
    part = page.partition("may change in any release:")[2].partition("Private")[0]
    listed = set(re.findall(r"`([\w.]+)`", part))
    marked = set()
    for path in stubs.doors():
        room = path.parent.name
        package = "relaxjax" if room == "relaxjax" else f"relaxjax.{room}"
        for name in importlib.import_module(package).__all__:
            value = getattr(importlib.import_module(package), name)
            if "Experimental: " in (inspect.getdoc(value) or ""):
                own = hasattr(relaxjax, name) and getattr(relaxjax, name) is value
                marked.add(name if own else f"{room}.{name}")
    assert marked == listed


def test_an_old_spelling_works_and_warns_once():
    old = "Mark"
    relaxjax.checkpoint.__dict__.pop(old, None)
    with pytest.warns(DeprecationWarning, match=r"Mark is now .*\.MergeRule"):
        first = getattr(relaxjax.checkpoint, old)
    # A second warning would be an error here.
    assert getattr(relaxjax.checkpoint, old) is first
    assert first is relaxjax.checkpoint.MergeRule
