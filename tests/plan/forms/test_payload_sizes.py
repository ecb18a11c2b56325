"""The bytes of a code without its program are those of the program."""

import pytest

from relaxjax.compression import COMPRESSORS
from relaxjax.plan.forms._payload_sizes import FORMS, payload_size, traced

SIZES = (1, 2, 16, 33, 1025, 65537)  # below and above the blocks of most


@pytest.mark.parametrize("name", COMPRESSORS)
def test_the_form_of_a_code_is_what_its_program_makes(name):
    form = payload_size(name)
    assert [form(d) for d in SIZES] == [traced(name, d) for d in SIZES]


def test_a_code_without_a_form_is_traced(monkeypatch):
    forms = {name: form for name, form in FORMS.items() if name != "sign"}
    monkeypatch.setattr("relaxjax.plan.forms._payload_sizes.FORMS", forms)
    sized = "relaxjax.plan.forms._payload_sizes.traced"
    monkeypatch.setattr(sized, lambda name, d: traced(name, d) + 1_000_000)
    payload_size.cache_clear()
    assert payload_size("sign")(1000) == 1_000_129
    payload_size.cache_clear()
