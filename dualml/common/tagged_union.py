"""Tagged unions: records of several kinds, whose tag is inferred from what is written.

A union is a record with the settings of all kinds. A kind has some of them for their default alone
(``without``), or for fewer values (``only``): the type of such a field raises an error with a
reason. Readers use the settings of all kinds alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from operator import getitem
from typing import Annotated, Any, ClassVar, Self, Union, get_type_hints

from pydantic import BaseModel, Discriminator, Field, Tag, model_validator
from pydantic_core import to_jsonable_python

from dualml.common.errors import UserError
from dualml.common.strict_model import TAG_PREFIX, Restricted, StrictModel

#: Reason why a setting by which a kind is inferred has no other value there.
OTHER_KIND = "{value} is of another kind"


class TaggedUnion(StrictModel):
    """Base of records of several kinds: calling the union makes a record of the kind that the
    settings are of.

    A direct subclass is a union, with the fields of all kinds and `infer_tag`. Subclasses of it
    with a ``tag`` are its kinds.

    Attributes:
        tag: name of the kind.
        absent: settings that the kind does not have.
        union: the union that the kind belongs to.
        kinds: tag → kind of the union.
    """

    tag: ClassVar[str] = ""
    absent: ClassVar[frozenset[str]] = frozenset()
    union: ClassVar[Any]
    kinds: ClassVar[dict[str, Any]]

    def __init_subclass__(
        cls,
        tag: str = "",
        without: Mapping[str, str] = {},
        only: Mapping[str, Restricted] = {},
        **more: Any,
    ) -> None:
        """Restrict the types of settings, and list the class with the kinds of its union.

        Args:
            without: settings that the kind does not have → reason.
            only: settings of which the kind takes fewer values → which ones.
        """
        super().__init_subclass__(**more)
        if TaggedUnion in cls.__bases__:
            cls.union, cls.kinds = cls, {}
            return
        cls.tag, cls.absent = tag, cls.absent | without.keys()
        if tag:
            cls.kinds[tag] = cls
        defaults = {name: cls.union.model_fields[name].default for name in (*without, *only)}
        absent = {name: make_choice(why, defaults[name]) for name, why in without.items()}
        for name, restricted in {**only, **absent}.items():
            field = Field(validate_default=restricted.covers_default)
            hint = (_field_types(cls.union)[name], field, restricted)
            cls.__annotations__[name] = getitem(Annotated, hint)
            setattr(cls, name, defaults[name])

    def __new__(cls, **settings: Any) -> Self:
        """Make a record of the kind that the settings are of."""
        return super().__new__(cls.find_kind(settings))

    @classmethod
    def infer_tag(cls, settings: Any) -> str:
        """Return the tag of the kind that settings are of: a record, a table, or any other value,
        which the kind then refuses."""
        raise NotImplementedError

    @classmethod
    def find_kind(cls, settings: Any) -> type[Self]:
        """Return the kind that settings of the union are of; a kind returns itself."""
        return cls if cls is not cls.union else cls.kinds[cls.infer_tag(settings)]

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Validate settings as the kind that they are of; ``options`` are those of pydantic. Raise
        `ValidationError` for settings that this kind does not take."""
        kind = cls.find_kind(obj)
        return super(TaggedUnion, kind).model_validate(obj, **options)

    @classmethod
    def model_construct(cls, _fields_set: set[str] | None = None, **values: Any) -> Self:
        """Make a record of the kind that the values are of, without validating them; fields that
        are left out have the union's defaults."""
        usual = {
            name: field.get_default(call_default_factory=True)
            for name, field in cls.union.model_fields.items()
            if name not in values and not field.is_required()
        }
        written = set(values) if _fields_set is None else _fields_set
        return super(TaggedUnion, cls.find_kind(values)).model_construct(written, **usual, **values)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with other values, of the kind that these are of, without validating
        them."""
        copied = super().model_copy(update=update, deep=deep)
        kind: type[Self] = self.kinds[self.infer_tag(copied)]
        return kind.model_construct(copied.model_fields_set, **vars(copied))

    @model_validator(mode="after")
    def _is_inferred(self) -> Self:
        """Raise `UserError` if the settings are those of another kind."""
        if (tag := self.infer_tag(self)) != self.tag:
            raise UserError(f"kind {self.tag} has no such settings; they are of {tag}")
        return self


@cache
def _field_types(union: type[TaggedUnion]) -> Mapping[str, Any]:
    """Return field → annotated type of a union's fields."""
    return get_type_hints(union, include_extras=True)


def make_union_type(first: type[TaggedUnion], *others: type[TaggedUnion]) -> Any:
    """Return the type of a field that takes each of these kinds of one union."""
    kinds = (first, *others)
    tagged = tuple(Annotated[kind, Tag(TAG_PREFIX + kind.tag)] for kind in kinds)
    discriminator = Discriminator(lambda settings: TAG_PREFIX + first.infer_tag(settings))
    return Annotated[Union[tagged], discriminator]  # noqa: UP007  of a tuple


def make_choice(reason: str, *values: Any) -> Restricted:
    """Return the restriction of a setting to these values; ``reason`` is the text of the error for
    any other."""
    written = to_jsonable_python(values)
    schema = {"const": written[0]} if len(values) == 1 else {"enum": written}
    return Restricted(reason, lambda value: value in values, schema)


def make_minimum(reason: str, least: int) -> Restricted:
    """Return the restriction of a number to ``least`` and more; ``reason`` is the text of the error
    for a smaller one."""
    return Restricted(reason, lambda value: value >= least, {"minimum": least})


def read_setting(table: Any, key: str) -> Any:
    """Return a setting of a record or of a table that is not validated yet; None without it."""
    if isinstance(table, BaseModel):
        return getattr(table, key, None)
    return table.get(key) if isinstance(table, Mapping) else None
