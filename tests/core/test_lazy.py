"""Doors of a package that is made up, whose modules are those of the library."""

import sys
import types
import warnings

import pytest

from relaxjax._core._lazy import door


@pytest.fixture
def package(monkeypatch):
    """A package "made_up" with a module `inner` and a subpackage `room`."""
    for name in ("made_up", "made_up.inner", "made_up.room"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["made_up.inner"].__dict__.update(one=1, two=2, three=3)
    return sys.modules["made_up"]


NAMES = {"inner": "two one", "": "room", "relaxjax._core._tree": "is_key"}


def test_names_are_listed_and_shared_ones_are_not(package):
    get, listed, public = door("made_up", NAMES, shared={"inner": "three"})
    assert public == listed() == ["is_key", "one", "room", "two"]
    assert get("three") == 3
    assert package.__dict__["three"] == 3


def test_a_name_is_fetched_from_its_home_and_kept(package):
    get, _, _ = door("made_up", NAMES)
    assert get("one") == package.__dict__["one"] == 1
    assert get("room") is package.__dict__["room"] is sys.modules["made_up.room"]
    assert get("is_key") is package.__dict__["is_key"]
    assert get("is_key").__module__ == "relaxjax._core._tree"
    with pytest.raises(AttributeError, match="'made_up' has no attribute 'three'"):
        get("three")


def test_an_old_name_warns_where_it_is_asked_for_and_is_kept(package):
    package.__dict__["one"] = 1
    get, _, public = door("made_up", NAMES, deprecated={"uno": "one"})
    assert "uno" not in public
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert get("uno") == package.__dict__["uno"] == 1
    (warned,) = caught
    assert warned.category is DeprecationWarning
    assert str(warned.message) == "made_up.uno is now made_up.one"
    assert warned.filename == __file__
