"""One kind of random number generator, whatever kind of seed was given."""

from typing import Any

import numpy as np


def random_state_of(seed: Any) -> np.random.RandomState:
    """Turn any of NumPy's seeds and generators into a `numpy.random.RandomState`."""
    if isinstance(seed, np.random.Generator):
        return np.random.RandomState(seed.bit_generator)
    if isinstance(seed, np.random.RandomState):
        return seed
    if isinstance(seed, (int, np.integer)):
        return np.random.RandomState(seed)
    from sklearn.utils import check_random_state  # a second to import; the usual seeds do not need it

    return check_random_state(seed)
