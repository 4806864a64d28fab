"""One rollout of one agent, as a context manager."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._environment import child_environment
from ._params import UNSET, Unset
from .client import Client
from .errors import CaptureProxyError
from .rollout import Rollout
from .status import Created, Scored, SessionStatus

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import CloseOptions, CreateOptions, DocumentOptions


class Session:
    """A session from its creation to its document.

        with Session(group="task-7", purpose="train") as session:
            subprocess.run(["my-agent"], env=session.environment(), check=True)
            session.score(1.0)
        print(session.rollout.trainable)

    It is created on entry, with `Client.create`'s arguments, and closed on exit: as failed with "Type: message" when an
    exception leaves the block, which then goes on. `rollout` is its document afterwards.
    """

    def __init__(self, url: str | None = None, *, admin_key: str | None = None, client: Client | None = None, **create: Unpack[CreateOptions]) -> None:
        if client is not None and (url is not None or admin_key is not None):
            raise ValueError("a client has its own url and admin_key: give one or the other")
        self.client = client or Client(url, admin_key)
        self._create = create
        self._created: Created | None = None
        self._rollout: Rollout | None = None
        self._deleted = False

    def __repr__(self) -> str:  # without the id, which is a key
        state = "not created" if self._created is None else "open" if self._rollout is None else self._rollout.status
        return f"<Session at {self.client.url}, {state}>"

    def start(self) -> Session:
        """Creates the session; `with` does it by itself."""
        if self._created is not None:
            raise CaptureProxyError("this session was created already: make another Session for another rollout")
        self._created = self.client.create(**self._create)
        return self

    def __enter__(self) -> Session:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._rollout is not None or self._deleted:
            return
        if error is None:
            self.close()
            return
        try:
            self.close(status="failed", error=f"{type(error).__name__}: {error}")
        except CaptureProxyError as problem:  # the block's own exception matters more and must not be hidden by this one
            warnings.warn(f"the session could not be closed: {problem}", RuntimeWarning, stacklevel=2)

    @property
    def created(self) -> Created:
        """What the proxy answered to the creation."""
        if self._created is None:
            raise CaptureProxyError("the session is not created yet: use it in a with block, or call start()")
        return self._created

    @property
    def id(self) -> str:
        """The session's id."""
        return self.created.session_id

    @property
    def key(self) -> str:
        """The API key that the agent uses: the session's id."""
        return self.created.session_id

    @property
    def base_url(self) -> str:
        """A base URL that names the session itself, for agents whose API key cannot be set. Without /v1."""
        return self.created.base_url

    @property
    def proxy_url(self) -> str:
        """Where agents reach the proxy; Anthropic's and Google's clients take it as their base URL, with the key."""
        return self.created.base_url.removesuffix("/s/" + self.created.session_id)

    @property
    def openai_base_url(self) -> str:
        """The base URL for OpenAI's clients, with the key."""
        return self.proxy_url + "/v1"

    def environment(self, parent: Mapping[str, str] | None = None) -> dict[str, str]:
        """An agent's environment: the variables of every dialect lead to this session.

        The proxy's admin key is taken out, so that an agent cannot score itself, and so are other credentials that
        would win over the session's key. parent is os.environ without it.
        """
        return child_environment(os.environ if parent is None else parent, self.proxy_url, self.key)

    def status(self) -> SessionStatus:
        """How the session stands."""
        return self.client.status(self.id)

    def score(
        self,
        reward: float | None | Unset = UNSET,
        *,
        rewards: Mapping[str, float | None] | None | Unset = UNSET,
        metadata: Mapping[str, Any] | None | Unset = UNSET,
        run: Mapping[str, Any] | None | Unset = UNSET,
    ) -> Scored:
        """Changes what is said about the session, also after its end; `rollout` stays as it was, `document()` knows."""
        return self.client.score(self.id, reward, rewards=rewards, metadata=metadata, run=run)

    def cancel(self, reason: str = "") -> SessionStatus:
        """Gives the session up: its calls are ended now, and later ones refused."""
        return self.client.cancel(self.id, reason)

    def close(self, **how: Unpack[CloseOptions]) -> Rollout:
        """Ends the session, with `Client.close`'s arguments, and returns its document."""
        self._rollout = self.client.close(self.id, **how)
        return self._rollout

    def document(self, **choice: Unpack[DocumentOptions]) -> Rollout:
        """The document as it is now, with `Client.document`'s arguments."""
        return self.client.document(self.id, **choice)

    def delete(self) -> None:
        """Removes the session and all that it recorded."""
        self.client.delete(self.id)
        self._deleted = True

    @property
    def rollout(self) -> Rollout:
        """The document that the session was closed with."""
        if self._rollout is None:
            raise CaptureProxyError("the session is not closed: its document so far is document()")
        return self._rollout
