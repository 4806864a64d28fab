"""The keyword arguments that several functions share, for type checkers."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, TypedDict

from ._params import Unset


class CreateOptions(TypedDict, total=False):
    """What `Client.create` takes."""

    session_id: str | None
    metadata: Mapping[str, Any] | None
    env: str | Mapping[str, Any] | None
    group: str | Mapping[str, Any] | None
    run: Mapping[str, Any] | None
    purpose: str | None
    frozen: bool | None
    sampling: Mapping[str, Any] | None
    eval_sampling: Mapping[str, Any] | None
    continuity: str | None
    reasoning_field: str | None
    shared: str | None
    max_model_calls: int | None
    max_output_tokens: int | None
    min_turns: int | None
    llm_url: str | None
    model: str | None
    api_key: str | None
    auth_header: str | None
    provider: str | None


class DocumentOptions(TypedDict, total=False):
    """What `Client.document` takes."""

    include_discarded: bool
    include_messages: bool
    shared: str | None


class CloseOptions(DocumentOptions, total=False):
    """What `Client.close` takes."""

    status: str | None
    error: str | None
    reward: float | None | Unset
    rewards: Mapping[str, float | None] | None | Unset
    metadata: Mapping[str, Any] | None | Unset
    wait: float | None


class RolloutsOptions(DocumentOptions, total=False):
    """What `Client.rollouts` takes."""

    group: str | None
    run: str | None
    env: str | None
    since: datetime.datetime | None
    status: str | None
