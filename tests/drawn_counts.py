"""Counts drawn from a model of co-occurrence data, with known hidden variables."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class DrawnCounts(NamedTuple):
    """Counts drawn from a model, with its hidden variables."""

    counts: NDArray[np.int64]
    """int64 (N, M)."""
    components: NDArray[np.int64]
    """int64 (N, R), how many occurrences of each row came from each component."""


def draw_counts(
    mixing: ArrayLike,
    profiles: ArrayLike,
    occurrences: int | ArrayLike,
    whole_rows: bool = False,
    random_state: int | np.random.Generator | None = 0,
) -> DrawnCounts:
    """Draw counts from a mixture: ``mixing_`` (N, R) and ``components_`` (R, M) of any fitted model.

    Each occurrence draws its own component; of ``whole_rows`` all occurrences come from one.
    """
    shares, columns = np.asarray(mixing, dtype=float), np.asarray(profiles, dtype=float)
    totals = np.broadcast_to(np.asarray(occurrences, dtype=np.int64), (len(shares),))
    rng = np.random.default_rng(random_state)
    shares = shares / shares.sum(axis=1, keepdims=True)
    columns = columns / columns.sum(axis=1, keepdims=True)
    if whole_rows:
        components = rng.multinomial(1, shares) * totals[:, None]
    else:
        components = rng.multinomial(totals, shares)
    counts = np.sum([rng.multinomial(components[:, r], columns[r]) for r in range(len(columns))], axis=0)
    return DrawnCounts(counts, components)
