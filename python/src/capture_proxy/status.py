"""What the control API answers about sessions and groups; the names are its own."""

from __future__ import annotations

import dataclasses
from typing import Any

from ._decode import Record, nested
from .rollout import Env, Group


@dataclasses.dataclass(kw_only=True)
class Created(Record):
    """A session that was created. `capture_level` and `rollout_type` are None while the engine is not measured."""

    session_id: str
    base_url: str
    capture_level: str | None
    rollout_type: str | None
    max_model_calls: int | None
    llm_url: str | None
    model: str | None


@dataclasses.dataclass(kw_only=True)
class Summary(Record):
    """One line of the index of sessions."""

    session_id: str
    status: str
    turns: int
    roots: int
    idle_s: float | None
    upstream_errors: int
    created_at: str | None
    closed_at: str | None
    error: str | None
    reward: float | None
    group: Group | None = nested(Group)
    run: dict[str, Any] | None
    env: Env | None = nested(Env)
    metadata: dict[str, Any]


@dataclasses.dataclass(kw_only=True)
class SessionStatus(Summary):
    """How a session stands."""

    rewards: dict[str, float]
    purpose: str
    capture_level: str | None
    rollout_type: str | None
    llm_url: str | None
    model: str | None
    max_model_calls: int | None
    n_turns: int
    n_roots: int
    n_leaves: int
    n_forks: int
    n_discarded: int
    n_failed_calls: int
    n_trainable_tokens: int
    in_flight: int
    budget_stop_count: int
    trainable: bool
    capture_failed: str | None


@dataclasses.dataclass(kw_only=True)
class Scored(Record):
    """What is said about a session now."""

    session_id: str
    status: str
    reward: float | None
    rewards: dict[str, float]
    metadata: dict[str, Any]
    run: dict[str, Any] | None


@dataclasses.dataclass(kw_only=True)
class GroupSession(Record):
    """One session of a group."""

    session_id: str
    status: str
    reward: float | None
    trainable: bool


@dataclasses.dataclass(kw_only=True)
class GroupStatus(Record):
    """How the sessions of one task did. `size` is as planned, None when nobody said."""

    group_id: str
    size: int | None
    sessions: list[GroupSession] = nested(GroupSession)
    mean_reward: float | None
    std_reward: float | None
    pass_rate: float | None
    n_trainable: int
