"""Sessions and rollouts of a running capture-proxy.

A session is one rollout of one agent: its key is the API key that the agent uses, and when it is closed there is one
document with exact token ids, loss masks and logprobs.

    with Session(group="task-7") as session:
        run_agent(base_url=session.openai_base_url, api_key=session.key)
        session.score(1.0)
    for row in session.rollout.training_rows():
        ...

`Client` is the control API call by call, `rollouts()` goes through what was collected, and `Rollout` is the document.
Nothing but the standard library is needed; `rows_as_numpy` needs numpy.
"""

from .arrays import NumpyRow, rows_as_numpy
from .client import Client, rollouts
from .errors import (
    ApiError,
    AuthenticationError,
    CaptureProxyError,
    ConflictError,
    DamagedIndexError,
    DocumentError,
    InvalidRequestError,
    NotFoundError,
    NotTrainableError,
    PermissionDeniedError,
    ProxyUnreachableError,
    UnavailableError,
)
from .rollout import Row, Rollout, Turn
from .session import Session
from .status import Created, GroupStatus, Scored, SessionStatus, Summary

__all__ = [
    "ApiError",
    "AuthenticationError",
    "CaptureProxyError",
    "Client",
    "ConflictError",
    "Created",
    "DamagedIndexError",
    "DocumentError",
    "GroupStatus",
    "InvalidRequestError",
    "NotFoundError",
    "NotTrainableError",
    "NumpyRow",
    "PermissionDeniedError",
    "ProxyUnreachableError",
    "Rollout",
    "Row",
    "Scored",
    "Session",
    "SessionStatus",
    "Summary",
    "Turn",
    "UnavailableError",
    "rollouts",
    "rows_as_numpy",
]
