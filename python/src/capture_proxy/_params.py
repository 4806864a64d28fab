"""Arguments that are left out, which is not the same as None where None removes."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final


class Unset(enum.Enum):
    """The type of UNSET."""

    UNSET = "UNSET"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET
"""Stands for an argument that was not given."""


def given(**fields: Any) -> dict[str, Any]:
    """The arguments that were given."""
    return {name: value for name, value in fields.items() if value is not UNSET}


def not_none(**fields: Any) -> dict[str, Any]:
    """The arguments that are not None, for requests in which None says nothing."""
    return {name: value for name, value in fields.items() if value is not None}


def with_id(value: str | Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """An object with an id; text is the id of one that has nothing else."""
    return {"id": value} if isinstance(value, str) else value


def document_query(include_discarded: bool, include_messages: bool, shared: str | None) -> dict[str, str]:
    """The parameters that choose what a document holds."""
    query = not_none(shared=shared)
    if include_discarded:
        query["include_discarded"] = "true"
    if include_messages:
        query["include_messages"] = "true"
    return query
