from hypothesis import given
from hypothesis import strategies as st

from ps_common.protocol.names import as_name, as_text, is_name
from tests.rows import row


def test_any_text_has_a_nearest_name() -> None:
    for text, name in [
        ("tower-17", "tower-17"),
        ("b\xfcro.example:1/a@b+c", "b-ro.example:1/a@b+c"),
        ("-rf", "rf"),
        ("", "unnamed"),
        ("\u202e", "unnamed"),
        ("x" * 200, "x" * 100),
    ]:
        with row(text, name):
            assert as_name(text) == name
            assert is_name(name)


@given(st.text())
def test_any_text_becomes_a_text_that_peers_accept(text: str) -> None:
    assert is_name(as_name(text))
    assert as_text(text).isascii()
    assert len(as_text(text)) <= 200
    assert not text.isascii() or not text.isprintable() or as_text(text)[:197] == text[:197]
