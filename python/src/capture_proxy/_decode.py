"""JSON objects as dataclasses, and back.

Fields that a class does not know are kept in `extra`: a document of a newer proxy loses nothing on its way through a
program that was written for an older one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from .errors import DocumentError

T = TypeVar("T", bound="Record")


def nested(kind: type[Record], name: str | None = None) -> Any:
    """Declares a field that holds an object of that class, a list of them, or null; name is its name in JSON."""
    return dataclasses.field(metadata={"kind": kind, "name": name})


def named(name: str) -> Any:
    """Declares a field whose name in JSON is no name in Python."""
    return dataclasses.field(metadata={"name": name})


def absent() -> Any:
    """Declares a field that need not be there; None then."""
    return dataclasses.field(default=None, metadata={"optional": True})


@dataclasses.dataclass(kw_only=True)
class Record:
    """A JSON object whose fields are known by name."""

    extra: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)

    @classmethod
    def from_dict(cls: type[T], value: Mapping[str, Any]) -> T:
        """Reads an object. A field without a default that is missing is an error; it is never made up."""
        if not isinstance(value, Mapping):
            raise DocumentError(f"{cls.__name__}: want an object, got {type(value).__name__}")
        given: dict[str, Any] = {}
        rest = dict(value)
        for field in dataclasses.fields(cls):
            if field.name == "extra":
                continue
            name = _name(field)
            if name in rest:
                given[field.name] = _read(field, rest.pop(name))
            elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                raise DocumentError(f"{cls.__name__} lacks the field {name}")
        return cls(**given, extra=rest)

    def to_dict(self) -> dict[str, Any]:
        """Writes the object as it was read, unknown fields included."""
        out: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            if field.name == "extra":
                continue
            value = getattr(self, field.name)
            if field.metadata.get("optional") and value is None:
                continue
            out[_name(field)] = _write(value)
        return out | self.extra


def _name(field: dataclasses.Field[Any]) -> str:
    return field.metadata.get("name") or field.name


def _read(field: dataclasses.Field[Any], value: Any) -> Any:
    kind = field.metadata.get("kind")
    if kind is None or value is None:
        return value
    if isinstance(value, list):
        return [kind.from_dict(item) for item in value]
    return kind.from_dict(value)


def _write(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, list) and value and isinstance(value[0], Record):
        return [item.to_dict() for item in value]
    return value
