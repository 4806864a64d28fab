"""The rollout document: what a session recorded, ready for a trainer.

The names are the document's own. None stands for its null: what is missing is missing, never 0. Times are the
document's text (RFC 3339, UTC). Findings are strings, `[LEVEL] code: detail`.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

from ._decode import Record, absent, named, nested
from .errors import DocumentError, NotTrainableError

SCHEMA_VERSION = 1
"""The newest form of the document that this package reads."""


@dataclasses.dataclass(kw_only=True)
class Outcome(Record):
    """How the session ended: completed, failed, cancelled or expired."""

    status: str
    error: str | None


@dataclasses.dataclass(kw_only=True)
class Env(Record):
    """The environment that the rollout ran in."""

    id: str
    name: str | None = None


@dataclasses.dataclass(kw_only=True)
class Group(Record):
    """The sessions planned together from one task."""

    id: str
    size: int | None = None


@dataclasses.dataclass(kw_only=True)
class Policy(Record):
    """How far the weights moved during and around the rollout."""

    start: int | None
    end: int | None
    drift: int | None
    off_policy_steps: int | None


@dataclasses.dataclass(kw_only=True)
class Harness(Record):
    """What the caller's headers told."""

    name: str | None
    version: str | None
    agent_id: str | None
    parent_agent_id: str | None


@dataclasses.dataclass(kw_only=True)
class Break(Record):
    """Where and probably why a root leaves the turn that it continues."""

    position: int | None
    cause: str
    detail: str | None


@dataclasses.dataclass(kw_only=True)
class Edit(Record):
    """One difference between what the harness sent and what the engine was sent."""

    param: str
    from_: Any = named("from")
    to: Any
    why: str


@dataclasses.dataclass(kw_only=True)
class TurnPolicy(Record):
    """The version of the weights at moments of a call, and what the engine itself reported."""

    dispatch: int | None
    first_token: int | None
    end: int | None
    engine: Any


@dataclasses.dataclass(kw_only=True)
class Timing(Record):
    """A call's moments."""

    received: str | None
    dispatched: str | None
    first_token: str | None
    last_token: str | None
    recorded: str | None


@dataclasses.dataclass(kw_only=True)
class Turn(Record):
    """One model call that was answered."""

    node_id: str
    index: int
    call: int
    parent_id: str | None
    root_id: str
    link: str | None
    n_prompt: int
    n_sampled: int
    n_tools: int
    finish_reason: str | None
    finish_reason_raw: str | None
    outcome: str
    harness_session_id: str | None
    harness: Harness = nested(Harness)
    dialect: str
    model: str | None
    sampling_params: dict[str, Any] | None
    requested_sampling_params: dict[str, Any] | None
    sampled_logprobs: list[float | None] | None
    discarded: bool
    discard_reason: str | None
    continues: str | None
    break_: Break | None = nested(Break, "break")
    retry_of: int | None
    prompt_source: str | None
    edits: list[Edit] = nested(Edit)
    policy: TurnPolicy = nested(TurnPolicy)
    usage: dict[str, Any] | None
    timing: Timing = nested(Timing)
    validation: list[str]
    # In documents made with include_messages only.
    request_messages: list[dict[str, Any]] | None = absent()
    request_tools: list[dict[str, Any]] | None = absent()
    response_message: dict[str, Any] | None = absent()


@dataclasses.dataclass(kw_only=True)
class FailedCall(Record):
    """A call, or one of its choices, that became no turn."""

    call: int
    outcome: str
    status: int | None
    detail: str | None
    n_prompt: int
    n_sampled: int
    sampled_ids: list[int]


@dataclasses.dataclass(kw_only=True)
class Stats(Record):
    """Counts of the document."""

    n_turns: int
    n_roots: int
    n_leaves: int
    n_forks: int
    n_discarded: int
    n_sequences: int
    n_trainable_sequences: int
    n_trainable_tokens: int
    n_distinct_trainable_tokens: int
    n_failed_calls: int
    n_forced: int = 0


@dataclasses.dataclass(kw_only=True)
class Row(Record):
    """One path from a root to a leaf, flattened: `input_ids`, `loss_mask` and `logprobs` are equally long."""

    row_id: str
    role: str
    root_id: str
    node_ids: list[str]
    n_turns: int
    prompt_len: int
    n_trainable: int
    turn_lengths: list[int]
    turn_spans: list[list[int]]
    shared_spans: list[list[int]]
    input_ids: list[int]
    loss_mask: list[int]
    logprobs: list[float]
    trainable: bool
    validation: list[str]

    def trained_once(self) -> Row:
        """The row without what an earlier row of the same rollout trains already; itself where that is nothing.

        A turn on several rows has mask 1 in each, unless the document was made with shared=once.
        """
        if not any(any(self.loss_mask[start:end]) for start, end in self.shared_spans):
            return self
        mask, logprobs = list(self.loss_mask), list(self.logprobs)
        for start, end in self.shared_spans:
            mask[start:end] = [0] * (end - start)
            logprobs[start:end] = [0.0] * (end - start)
        return dataclasses.replace(self, loss_mask=mask, logprobs=logprobs, n_trainable=sum(mask))


@dataclasses.dataclass(kw_only=True)
class Profile(Record):
    """The engine as measured."""

    provider: str | None
    version: str | None
    capture_level: str | None
    stream_capture: bool
    logprobs_mode: str | None
    forced_ids: bool
    reasoning_field: str | None
    tool_support: bool


@dataclasses.dataclass(kw_only=True)
class Engine(Record):
    """What answered."""

    url: str | None
    model: str | None
    profile: Profile = nested(Profile)
    param_edits: list[Edit] = nested(Edit)


@dataclasses.dataclass(kw_only=True)
class Rollout(Record):
    """The document of one session."""

    schema_version: int
    session_id: str
    status: str
    outcome: Outcome | None = nested(Outcome)
    created_at: str | None
    closed_at: str | None
    env: Env | None = nested(Env)
    group: Group | None = nested(Group)
    run: dict[str, Any] | None
    policy: Policy | None = nested(Policy)
    reward: float | None
    rewards: dict[str, float]
    metadata: dict[str, Any]
    budget_stop_count: int
    turns: list[Turn] = nested(Turn)
    failed_calls: list[FailedCall] = nested(FailedCall)
    stats: Stats = nested(Stats)
    sequences: list[Row] = nested(Row)
    shared: str | None
    validation: list[str]
    trainable: bool
    capture_level: str | None
    rollout_type: str
    engine: Engine = nested(Engine)
    proxy_version: str | None

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Rollout:
        """Reads a document from its parsed JSON."""
        version = value.get("schema_version") if isinstance(value, Mapping) else None
        if not isinstance(version, int):
            raise DocumentError("this is no rollout document: it has no schema_version")
        if version > SCHEMA_VERSION:
            raise DocumentError(
                f"the document has schema_version {version}, this package reads up to {SCHEMA_VERSION}: use a newer capture-proxy package"
            )
        return super().from_dict(value)

    @classmethod
    def from_json(cls, text: str | bytes) -> Rollout:
        """Reads a document from its JSON."""
        try:
            value = json.loads(text, parse_constant=_no_number)
        except ValueError as error:
            raise DocumentError(f"this is no rollout document: {error}") from error
        return cls.from_dict(value)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Rollout:
        """Reads a document from a file, such as `capture-proxy run --out` writes."""
        with open(path, "rb") as file:
            return cls.from_json(file.read())

    def training_rows(self, shared: str = "once") -> list[Row]:
        """The rows to train on. With shared="once" each sampled token is trained in one of them only, with "every" in
        each row that it lies on.

        Raises NotTrainableError where the rollout may not be trained on at all: ask `trainable` first in a loop.
        """
        if shared not in ("once", "every"):
            raise ValueError(f'shared is "once" or "every", not {shared!r}')
        reason = self._shut()
        if reason:
            raise NotTrainableError(f"session {self.session_id} may not be trained on: {reason}")
        rows = [row for row in self.sequences if row.trainable]
        if shared == "once":
            return [row for row in (row.trained_once() for row in rows) if any(row.loss_mask)]
        if self.shared == "once" and any(row.shared_spans for row in self.sequences):
            raise NotTrainableError(
                "the document was made with shared=once, in which shared turns are masked: ask the proxy for it with shared=\"every\""
            )
        return rows

    def _shut(self) -> str:
        if self.status == "running":
            return "it is still running"
        if self.rollout_type != "train":
            return f"it is an eval rollout, at capture level {self.capture_level}"
        fatal = [finding for finding in self.validation if finding.startswith("[FATAL]")]
        if fatal:
            return "; ".join(fatal)
        return "" if self.trainable else "no row is trainable"


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")
