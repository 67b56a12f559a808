"""uuids.py: one spelling of an id, and no other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.driver.uuids import is_uuid

ID = "0123abcd-89ef-4123-8abc-0123456789ab"


@given(st.uuids())
def test_a_uuid_in_its_usual_spelling_is_one(value: object) -> None:
    assert is_uuid(str(value))


@pytest.mark.parametrize("spelled", [ID.upper(), f"{ID}\n", f"{{{ID}}}", f"urn:uuid:{ID}", f" {ID}", f"{ID}0", ""])
def test_other_spellings_are_none(spelled: str) -> None:
    assert not is_uuid(spelled)
