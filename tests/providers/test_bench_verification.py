"""The benchmark of verification measures what is verified: every row of it accepts, and refuses a changed body, on both sides."""

import pytest

from bench import verify

BODY = b'{"id":"evt_1","note":"genuine"}'


def test_every_row_is_measured() -> None:
    """A shipped scheme of each kind is there, and each side verifies it at some pace."""
    rows = list(verify.rows(BODY))
    paces = {row.scheme: verify.measure(row, verify.FORM if row.package == "twilio" else BODY, 0.001) for row in rows}
    assert len(paces) == len(rows) == 10
    assert all(pace > 0 for both in paces.values() for pace in both)


def test_a_side_that_does_not_verify_is_not_measured() -> None:
    """Neither a side that refuses the genuine delivery nor one that accepts anything gives a figure."""
    right = next(iter(verify.rows(BODY))).ours
    for wrong in (lambda _: False, lambda _: True):
        with pytest.raises(SystemExit, match="package would not"):
            verify.measure(verify.Row(scheme="x", ours=right, package="package", theirs=wrong), BODY, 0.001)
