"""Rows as numpy arrays; the only part that needs numpy."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .errors import DocumentError
from .rollout import Row, Rollout

if TYPE_CHECKING:
    import numpy


@dataclasses.dataclass(frozen=True)
class NumpyRow:
    """A row's arrays, all equally long. `prompt_len` ids are the first prompt; what follows it is the response."""

    row_id: str
    prompt_len: int
    input_ids: numpy.ndarray[Any, Any]  # int64
    loss_mask: numpy.ndarray[Any, Any]  # bool
    logprobs: numpy.ndarray[Any, Any]  # float64: the engine's digits; 0.0 where the mask is false


def rows_as_numpy(rows: Rollout | Iterable[Row], shared: str = "once") -> list[NumpyRow]:
    """The training rows of a rollout as arrays, or the given rows as they are.

    Nothing is padded, shifted or cut. A rollout's rows are those of `Rollout.training_rows(shared)`.
    """
    try:
        import numpy
    except ImportError as error:
        raise ImportError('rows_as_numpy needs numpy: pip install "capture-proxy[numpy]"') from error
    out = []
    for row in rows.training_rows(shared) if isinstance(rows, Rollout) else rows:
        n = len(row.input_ids)
        if len(row.loss_mask) != n or len(row.logprobs) != n:
            raise DocumentError(
                f"row {row.row_id} is damaged: {n} ids, {len(row.loss_mask)} mask entries, {len(row.logprobs)} logprobs"
            )
        out.append(
            NumpyRow(
                row_id=row.row_id,
                prompt_len=row.prompt_len,
                input_ids=numpy.array(row.input_ids, dtype=numpy.int64),
                loss_mask=numpy.array(row.loss_mask, dtype=bool),
                logprobs=numpy.array(row.logprobs, dtype=numpy.float64),
            )
        )
    return out
