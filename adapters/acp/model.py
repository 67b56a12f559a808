"""What every wire model shares: names, strictness, and the marks of the v2 schema for malformed values (EXT-*, MAL-*).

Owns the base class and the field types; knows no message.

- Names: Python names in constructors, camelCase on the wire. The readers take wire names only: `idempotency_key` is no key
  (KEY-7).
- Absent, null and a value differ: `model_fields_set` has the fields that were given, and only those are dumped (EXT-7).
- Unknown fields are ignored (EXT-1), except in the `Other...` models, which preserve what they do not know (CONT-1).
- A malformed field with a mark counts as absent, also in a constructor: what a runtime sends must not cost a whole update.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    WrapValidator,
    model_validator,
)
from pydantic.alias_generators import to_camel, to_snake
from pydantic_core import CoreSchema, PydanticCustomError, ValidationError, core_schema

_MALFORMED: Final = object()


def _wire_name(name: str) -> str:
    return "_meta" if name == "meta" else to_camel(name)


class _Plain:
    """Replaces the schema of an annotated type."""

    def __init__(self, schema: CoreSchema) -> None:
        self._schema = schema

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Callable[[Any], CoreSchema]) -> CoreSchema:
        return self._schema


class DefaultOnError:
    """`x-deserialize-default-on-error`: a malformed value counts as absent."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], CoreSchema]) -> CoreSchema:
        return core_schema.with_default_schema(handler(source), default=_MALFORMED, on_error="default")


class SkipInvalid:
    """`x-deserialize-skip-invalid-items`, on the items of an array: a malformed item is dropped, the rest kept."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], CoreSchema]) -> CoreSchema:
        return core_schema.with_default_schema(handler(source), on_error="omit")


T = TypeVar("T")


def _empty_on_error(value: Any, handler: Callable[[Any], list[Any]]) -> list[Any]:
    try:
        return handler(value)
    except ValidationError:
        return []


def _null_is_empty(value: Any) -> Any:
    return [] if value is None else value


def _whole(value: Any) -> Any:
    return int(value) if type(value) is float and value.is_integer() else value


def _absolute(path: str) -> str:
    try:
        if os.path.isabs(path) and b"\0" not in os.fsencode(path):  # noqa: PTH117 - a test, no Path wanted
            return path
    except UnicodeEncodeError:
        raise PydanticCustomError("path_encoding", "must be a path in the encoding of file names") from None
    raise PydanticCustomError("absolute_path", "must be an absolute path")


Text = Annotated[str, _Plain(core_schema.is_instance_schema(str))]
"""Any string, lone surrogates included, which pydantic's own `str` refuses."""

AbsolutePath = Annotated[Text, AfterValidator(_absolute)]
"""An absolute path that the operating system can be asked about (SETUP-1)."""

Uint = Annotated[int, BeforeValidator(_whole), Field(strict=True, ge=0)]
"""A non-negative integer of any size; `1.0` is one, `true` and "1" are none (MAL-3)."""

Int = Annotated[int, BeforeValidator(_whole), Field(strict=True)]

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]

Bool = Annotated[bool, Field(strict=True)]

Raw = Annotated[Any, _Plain(core_schema.any_schema())]

Optional = Annotated[T | None, DefaultOnError()]
"""A nullable field marked default-on-error."""

Items = list[Annotated[T, SkipInvalid()]]
"""An array marked skip-invalid-items."""

OptionalItems = Annotated[list[Annotated[T, SkipInvalid()]] | None, DefaultOnError()]
"""A nullable array with both marks."""

SalvagedItems = Annotated[list[Annotated[T, SkipInvalid()]], DefaultOnError()]
"""An array with both marks that is not nullable: null counts as absent. Give it an empty default; it is never sent as null."""

RequiredItems = Annotated[list[Annotated[T, SkipInvalid()]], WrapValidator(_empty_on_error)]
"""An array with both marks that must be there; a bad value becomes empty."""

NullableItems = Annotated[list[T], BeforeValidator(_null_is_empty)]
"""`x-deserialize-default-on-null`: null is an empty array; anything else malformed is an error."""


OPEN: Final = _Plain(core_schema.is_instance_schema(str))
"""On a Literal: the values to send. Reading keeps any other string: `_x` is an extension, the rest reserved (EXT-2)."""


class Bare(BaseModel):
    """Base of every wire model. Immutable; built at first use."""

    model_config = ConfigDict(
        alias_generator=_wire_name,
        validate_by_name=True,
        validate_by_alias=False,
        serialize_by_alias=True,
        defer_build=True,
        extra="ignore",
        frozen=True,
        protected_namespaces=(),
    )

    _tags: ClassVar[frozenset[str]] = frozenset()
    _salvaged: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Note which fields are sent without being given (tags), and which may turn out malformed."""
        super().__pydantic_init_subclass__(**kwargs)
        fields = cls.model_fields
        cls._tags = frozenset(
            name
            for name, field in fields.items()
            if get_origin(field.annotation) is Literal and get_args(field.annotation) == (field.default,)
        )
        cls._salvaged = {
            name: field
            for name, field in fields.items()
            if any(isinstance(mark, DefaultOnError) for mark in field.metadata)
        }

    @model_validator(mode="after")
    def _settle(self) -> Self:
        given = self.__pydantic_fields_set__
        given |= self._tags
        values = vars(self)
        for name, field in self._salvaged.items():
            if values[name] is _MALFORMED:
                values[name] = field.get_default(call_default_factory=True, validated_data={})
                given.discard(name)
        return self


class Wire(Bare):
    """A model with `_meta`, as nearly all have."""

    meta: Optional[dict[str, Raw]] = None
    """`_meta`: custom data (EXT-6)."""


class Other(Wire):
    """Base of the variants this package does not know: everything is preserved as it came."""

    model_config = ConfigDict(extra="allow")


def by_tag(name: str, *known: str, other: bool = True) -> Discriminator:
    """Choose the variant by the member `name` (on the wire): its value in angle brackets, or "<other>" (EXT-3).

    With `other` false, an unknown value is malformed. The brackets tell tags from members in error locations.
    """
    tags = {value: f"<{value}>" for value in known}
    attribute = to_snake(name)

    def choose(value: Any) -> str | None:
        tag = value.get(name) if isinstance(value, dict) else getattr(value, attribute, None)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if not isinstance(tag, str):
            return None
        return tags.get(tag, "<other>" if other else None)

    wanted = "a string" if other else " or ".join(filter(None, (", ".join(known[:-1]), known[-1])))
    return Discriminator(choose, custom_error_type="tag", custom_error_message=f"{name} must be {wanted}")


def dump(model: BaseModel) -> dict[str, Any]:
    """The wire form: JSON values under wire names, what was given and nothing else. For `framing.encode`."""
    return model.model_dump(exclude_unset=True)
