"""Grids of sites with planted clusters that several test files share."""

import numpy as np

from texseg.counts.sites import Sites
from texseg.models.acm import HistogramClustering, Profiles

N_BINS, N_CHANNELS = 8, 3
GRID = (16, 20)


def regions(shape=GRID):
    """Four rectangles, 0 to 3."""
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    return (rows >= shape[0] // 2) * 2 + (columns >= shape[1] // 2)


def sites_of(region, seed=0, n_draws=60, missing=None):
    """Multinomial histograms of a grid whose regions have different profiles; returns sites and profiles."""
    rng = np.random.default_rng(seed)
    profiles = rng.dirichlet(np.full(N_BINS, 0.7), (region.max() + 1, N_CHANNELS))
    counts = rng.multinomial(n_draws, profiles[region.ravel()]) / n_draws
    sizes = np.ones(region.size)
    if missing is not None:
        sizes = np.where(missing.ravel(), 0.0, 1.0)
    counts = counts.reshape(region.size, -1) * sizes[:, None]
    background = counts.sum(axis=0) / sizes.sum()
    weights = np.repeat([1.0, 2.0, 1.0], N_BINS)
    sites = Sites(
        counts.astype(np.float32),
        sizes.astype(np.float32),
        weights.astype(np.float32),
        (region.shape,),
        background.astype(np.float32),
    )
    return sites, profiles.reshape(len(profiles), -1).astype(np.float32)


def scores_of(sites, profiles):
    """Log-likelihoods (N, ..., K) of sites under profiles (..., K, M)."""
    params = Profiles(profiles, np.ones(profiles.shape[:-1]))
    return HistogramClustering(background=sites.background).scores(sites, params)


def gains_of(sites, profiles):
    """Log-likelihoods (N, K) relative to the background profile."""
    return scores_of(sites, profiles) - scores_of(sites, sites.background[None])


def agree(labels, truth):
    """Whether two labellings are the same up to names."""
    pairs = np.unique(np.stack([np.ravel(labels), np.ravel(truth)]), axis=1)
    return len(pairs[0]) == len(np.unique(pairs[0])) == len(np.unique(pairs[1]))
