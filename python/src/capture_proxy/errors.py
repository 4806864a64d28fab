"""What can go wrong, one class for each thing that a caller may want to handle by itself."""

from __future__ import annotations


class CaptureProxyError(Exception):
    """Whatever this package raises."""


class ProxyUnreachableError(CaptureProxyError):
    """No answer came, or it broke off."""


class ApiError(CaptureProxyError):
    """The proxy answered with an error.

    `status` is the HTTP status, `type` the word that programs branch on, `param` the field of the request that is to
    blame, None where none is.
    """

    def __init__(self, status: int, message: str, type: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.param = param

    def __reduce__(self) -> tuple[object, ...]:
        return self.__class__, (self.status, self.message, self.type, self.param)


class InvalidRequestError(ApiError):
    """The request cannot be served as it is: `param` says which field to change."""


class AuthenticationError(ApiError):
    """The proxy has an admin key, and this is not it."""


class PermissionDeniedError(ApiError):
    """The control API is closed to this caller, whatever the key."""


class NotFoundError(ApiError):
    """There is no such session or group."""


class ConflictError(ApiError):
    """The session is not in a state for this, or another has its id."""


class UnavailableError(ApiError):
    """Not now: the engine is down, the proxy stops, or its store fails. The same request may work later."""


class DamagedIndexError(CaptureProxyError):
    """Some sessions of the proxy's store cannot be read any more, so that no list of them is whole."""


class DocumentError(CaptureProxyError):
    """This is no rollout document, or one of a newer form."""


class NotTrainableError(CaptureProxyError):
    """Training rows were asked of a rollout that may not be trained on; the message says why."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidRequestError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    405: InvalidRequestError,
    409: ConflictError,
    413: InvalidRequestError,
    415: InvalidRequestError,
    503: UnavailableError,
}


def api_error(status: int, message: str, type: str | None = None, param: str | None = None) -> ApiError:
    """Makes the error that stands for an HTTP status."""
    return _BY_STATUS.get(status, ApiError)(status, message, type, param)
