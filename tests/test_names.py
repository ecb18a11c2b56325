"""Public names: each is there, is imported late, and is what its module has."""

import importlib
import subprocess
import sys

import pytest

import relaxjax


def test_every_name_has_a_home():
    assert set(relaxjax.__all__) == set(relaxjax._HOMES) | {"__version__"} & set(
        relaxjax.__all__
    )
    assert dir(relaxjax) == sorted(relaxjax.__all__)


@pytest.mark.parametrize("name", sorted(relaxjax._HOMES))
def test_a_name_is_what_its_module_has(name: str):
    home = importlib.import_module(f"relaxjax.{relaxjax._HOMES[name]}")
    assert getattr(relaxjax, name) is getattr(home, name, home)


def test_other_names_are_errors():
    with pytest.raises(AttributeError, match="no attribute 'allreduce'"):
        getattr(relaxjax, "all" + "reduce")


def test_nothing_is_imported_before_it_is_asked_for():
    code = "import sys, relaxjax; print([m for m in sys.modules if 'relaxjax.' in m])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
