"""The control API of a proxy, call by call, and a way through what it has collected."""

from __future__ import annotations

import datetime
import os
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ._http import Transport
from ._params import UNSET, Unset, document_query, given, not_none, with_id
from .errors import DamagedIndexError, NotFoundError
from .rollout import Rollout
from .status import Created, GroupStatus, Scored, SessionStatus, Summary

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import RolloutsOptions

DEFAULT_URL = "http://127.0.0.1:8100"

# How many sessions one page of the index has.
_PAGE = 500


class Client:
    """Speaks to the control API of one proxy. Safe for use by several threads.

    url and admin_key default to the variables CAPTURE_PROXY_URL and CAPTURE_PROXY_ADMIN_KEY, the URL then to
    http://127.0.0.1:8100. timeout is in seconds and bounds the silence of one answer.
    """

    def __init__(self, url: str | None = None, admin_key: str | None = None, timeout: float = 60.0) -> None:
        key = admin_key if admin_key is not None else os.environ.get("CAPTURE_PROXY_ADMIN_KEY")
        self._http = Transport(url or os.environ.get("CAPTURE_PROXY_URL") or DEFAULT_URL, key, timeout)

    @property
    def url(self) -> str:
        """The proxy's URL."""
        return self._http.url

    def create(
        self,
        *,
        session_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        env: str | Mapping[str, Any] | None = None,
        group: str | Mapping[str, Any] | None = None,
        run: Mapping[str, Any] | None = None,
        purpose: str | None = None,
        frozen: bool | None = None,
        sampling: Mapping[str, Any] | None = None,
        eval_sampling: Mapping[str, Any] | None = None,
        continuity: str | None = None,
        reasoning_field: str | None = None,
        shared: str | None = None,
        max_model_calls: int | None = None,
        max_output_tokens: int | None = None,
        min_turns: int | None = None,
        llm_url: str | None = None,
        model: str | None = None,
        api_key: str | None = None,
        auth_header: str | None = None,
        provider: str | None = None,
    ) -> Created:
        """Creates a session. The names are those of the API; env and group may be just an id.

        With a session_id of the caller's own, the same request again is the same answer, so that it can be repeated
        when the connection broke. purpose="train" is refused at once where the engine gives no token ids.
        """
        body = not_none(
            session_id=session_id, metadata=metadata, env=with_id(env), group=with_id(group), run=run, purpose=purpose, frozen=frozen,
            sampling=sampling, eval_sampling=eval_sampling, continuity=continuity, reasoning_field=reasoning_field, shared=shared,
            max_model_calls=max_model_calls, max_output_tokens=max_output_tokens, min_turns=min_turns, llm_url=llm_url, model=model,
            api_key=api_key, auth_header=auth_header, provider=provider,
        )  # fmt: skip
        return Created.from_dict(self._http.call("POST", "/sessions", body=body))

    def sessions(
        self,
        *,
        status: str | None = None,
        group: str | None = None,
        run: str | None = None,
        env: str | None = None,
        since: datetime.datetime | None = None,
    ) -> Iterator[Summary]:
        """Goes through the index of sessions, newest first, a page at a time."""
        query: dict[str, Any] = not_none(status=status, group=group, run=run, env=env, since=_moment(since)) | {"limit": _PAGE}
        while True:
            page = self._http.call("GET", "/sessions", query)
            if page.get("damage"):
                raise DamagedIndexError(f"some sessions cannot be read any more, ask for those that can by their ids: {page['damage']}")
            for line in page["sessions"]:
                yield Summary.from_dict(line)
            if not page.get("next"):
                return
            query["after"] = page["next"]

    def status(self, session_id: str) -> SessionStatus:
        """How a session stands."""
        return SessionStatus.from_dict(self._http.call("GET", _path(session_id)))

    def document(
        self, session_id: str, *, include_discarded: bool = False, include_messages: bool = False, shared: str | None = None
    ) -> Rollout:
        """A session's document: what is there so far while it runs, for good once it is closed."""
        query = document_query(include_discarded, include_messages, shared)
        return Rollout.from_json(self._http.read("GET", _path(session_id, "/rollout"), query))

    def close(
        self,
        session_id: str,
        *,
        status: str | None = None,
        error: str | None = None,
        reward: float | None | Unset = UNSET,
        rewards: Mapping[str, float | None] | None | Unset = UNSET,
        metadata: Mapping[str, Any] | None | Unset = UNSET,
        wait: float | None = None,
        include_discarded: bool = False,
        include_messages: bool = False,
        shared: str | None = None,
    ) -> Rollout:
        """Ends a session and returns its document; one that has ended gives it once more.

        status is what the caller claims, "completed" or "failed"; error goes with "failed" and reads "Type: message".
        wait is how long calls under way are waited for, in seconds (the proxy's own 30 without it).
        """
        body = given(reward=reward, rewards=rewards, metadata=metadata)
        if error is not None and status is None:
            status = "failed"
        if status is not None:
            body["outcome"] = not_none(status=status, error=error)
        query: dict[str, Any] = document_query(include_discarded, include_messages, shared) | not_none(wait=wait)
        patience = self._http.timeout + (30.0 if wait is None else wait)
        return Rollout.from_json(self._http.read("POST", _path(session_id, "/close"), query, body, patience))

    def score(
        self,
        session_id: str,
        reward: float | None | Unset = UNSET,
        *,
        rewards: Mapping[str, float | None] | None | Unset = UNSET,
        metadata: Mapping[str, Any] | None | Unset = UNSET,
        run: Mapping[str, Any] | None | Unset = UNSET,
    ) -> Scored:
        """Changes what is said about a session, also after its end: later keys win, None removes."""
        body = given(reward=reward, rewards=rewards, metadata=metadata, run=run)
        return Scored.from_dict(self._http.call("POST", _path(session_id, "/score"), body=body))

    def cancel(self, session_id: str, reason: str = "") -> SessionStatus:
        """Gives a session up: its calls are ended now, and later ones refused."""
        return SessionStatus.from_dict(self._http.call("POST", _path(session_id, "/cancel"), body={"reason": reason}))

    def delete(self, session_id: str) -> None:
        """Removes a session and all that it recorded."""
        self._http.call("DELETE", _path(session_id))

    def trace_entries(self, session_id: str, *, shared: str | None = None) -> list[dict[str, Any]]:
        """A session's usable agent turns, as OpenEnv's trainers read them."""
        entries: list[dict[str, Any]] = self._http.call("GET", _path(session_id, "/trace_entries"), not_none(shared=shared))["entries"]
        return entries

    def group(self, group_id: str) -> GroupStatus:
        """How the sessions of a group did."""
        return GroupStatus.from_dict(self._http.call("GET", "/groups/" + urllib.parse.quote(group_id, safe="")))

    def set_policy(self, version: int) -> None:
        """Says which weights are live from now on."""
        self._http.call("POST", "/policy", body={"version": version})

    def policy(self) -> int | None:
        """The version of the weights that are live, None when nobody said."""
        version: int | None = self._http.call("GET", "/policy")["version"]
        return version

    def health(self) -> dict[str, Any]:
        """How the proxy is, and what it knows of its engine."""
        answer: dict[str, Any] = self._http.call("GET", "/health")
        return answer

    def rollouts(
        self,
        *,
        group: str | None = None,
        run: str | None = None,
        env: str | None = None,
        since: datetime.datetime | None = None,
        status: str | None = None,
        include_discarded: bool = False,
        include_messages: bool = False,
        shared: str | None = None,
    ) -> Iterator[Rollout]:
        """Goes through the documents of a group or a run, oldest first, and holds one at a time.

        Sessions that are still running are left out unless status="running" asks for them; so are those that are
        deleted meanwhile. Eval rollouts and those with a shut gate are not left out: see `Rollout.trainable`.
        """
        index = self.sessions(status=status, group=group, run=run, env=env, since=since)
        newest_first = [line.session_id for line in index if line.status != "running" or status == "running"]
        for session_id in reversed(newest_first):
            try:
                rollout = self.document(
                    session_id, include_discarded=include_discarded, include_messages=include_messages, shared=shared
                )
            except NotFoundError:
                continue
            yield rollout


def rollouts(url: str | None = None, *, admin_key: str | None = None, **choice: Unpack[RolloutsOptions]) -> Iterator[Rollout]:
    """`Client(url, admin_key).rollouts(**choice)`."""
    return Client(url, admin_key).rollouts(**choice)


def _path(session_id: str, rest: str = "") -> str:
    return "/sessions/" + urllib.parse.quote(session_id, safe="") + rest


def _moment(since: datetime.datetime | None) -> str | None:
    """A moment as the API reads it. Without a time zone it is local time, as everywhere in Python."""
    return None if since is None else since.astimezone(datetime.timezone.utc).isoformat().replace("+00:00", "Z")
