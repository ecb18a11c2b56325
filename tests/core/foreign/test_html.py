"""Notebooks show words and tables, in which nothing is markup."""

from relaxjax._core.foreign._html import paragraphs, table


def test_a_table_is_escaped_and_one_row_is_bold():
    found = table(["a<b", "c"], [["1", "&"], ["<script>", "2"]], bold=1)
    assert found == (
        "<table><tr><th>a&lt;b</th><th>c</th></tr><tr><td>1</td><td>&amp;</td></tr>"
        "<tr><th>&lt;script&gt;</th><th>2</th></tr></table>"
    )
    assert "<th>1" not in table(["a"], [["1"]])


def test_paragraphs_are_escaped():
    assert paragraphs(["a < b", '"']) == "<p>a &lt; b</p><p>&quot;</p>"
