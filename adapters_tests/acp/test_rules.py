"""Single rules of the protocol that hold by how the models are made."""

from __future__ import annotations

import re

from adapters.acp import schema
from adapters.acp.model import Bare


def models(base: type[Bare] = Bare) -> list[type[Bare]]:
    found = [base, *(inner for model in base.__subclasses__() for inner in models(model))]
    return [model for model in found if model.__module__.startswith("adapters.acp.")]


def test_names_on_the_wire_are_camel_case() -> None:
    """EXT-8: and the values that tell variants apart are snake_case."""
    assert len(models()) > 50
    for model in models():
        for name, field in model.model_fields.items():
            wire = field.alias or name
            assert wire == "_meta" or re.fullmatch(r"[a-z]+([A-Z][a-z]*|[0-9]+)*", wire), (model, wire)
            if name in model._tags:
                assert re.fullmatch(r"[a-z_]+", field.default), (model, name)


def test_the_diff_of_version_one_cannot_be_made() -> None:
    """DIFF-4, EXT-1: there is no field for it."""
    fields = {field.alias for field in schema.DiffItem.model_fields.values()}
    assert fields.isdisjoint({"path", "oldText", "newText"})
