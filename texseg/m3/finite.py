"""FiniteM3: two or more topic spaces joined word by word (Section 4.2, Eq. 7-12 of [1]).

With both memberships summed out, Eq. 7 gives a word the probability ::

    p(x | pi1, pi2) = a sum_i pi1_i theta1_ix + b sum_j pi2_j theta2_jx,   a = (1+w)/2,  b = (1-w)/2,

which is also the result of this procedure: throw a switch s (first space with probability a), draw a topic of
the chosen space, draw the word from it. With q(pi1) q(pi2) q(s, z) every update has closed form, and the
bound ::

    sum_dx n_dx log( sum_i e1_di a theta1_ix + sum_j e2_dj b theta2_jx ) - KL(q(pi1)) - KL(q(pi2)),
    e = exp E[log pi],

is never below that of the pairs q(z1) q(z2) of Section 4.2, each part of which is multiplied by the other
side's sum of e, at most one. More spaces are more positions of the switch, with shares a_l. Topics with a
Dirichlet prior get a Dirichlet posterior q(theta); theta above is then exp E[log theta].
"""

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import gammaln, psi
from sklearn.utils.validation import check_is_fitted

from texseg.counts.matrix import CountMatrix, row_blocks
from texseg.counts.random import random_state_of
from texseg.m3.families import Array
from texseg.models.base import Allowed, check_settings, entry_rows, is_number, normalise, products_at
from texseg.models.estimator import CountEstimator, DensityMixin, settings

_FIRST_OMEGA = 0.5
_NAMED_ALPHAS = "asymmetric", "symmetric"
_ALPHAS = 1e-4, 1e4  # range of a concentration that is estimated


class Topics(NamedTuple):
    """Parameters of the topic spaces."""

    spaces: tuple[NDArray[Any], ...]  # (Kl, M): probabilities, or Dirichlet parameters if integrated out
    shares: Array  # (L,), weights of the spaces, with sum one; (1 + omega) / 2 and (1 - omega) / 2 in Eq. 7
    alpha: Array  # (K1 + ... + KL,), concentration of the memberships in each topic

    @property
    def omega(self) -> float:
        """Sharing parameter of Eq. 7, of two spaces."""
        return float(1 - 2 * self.shares[1])

    @property
    def sizes(self) -> tuple[int, ...]:
        """K1 ... KL."""
        return tuple(len(space) for space in self.spaces)


class Expectation(NamedTuple):
    """What an E-step on a block of documents returns."""

    memory: Array  # Variational parameters of the documents; the next E-step may start from them
    bounds: Array  # (D,), lower bound of the log-likelihood of each document, in nats
    stats: tuple[Array, ...]  # Expected counts; they add over blocks


def split(values: Array, sizes: tuple[int, ...]) -> list[Array]:
    """Split the last axis, (K1 + ... + KL,), into the spaces."""
    return np.split(values, np.cumsum(sizes)[:-1], axis=-1)


def shares_of(omega: float) -> Array:
    """Weights of the two spaces of Eq. 7."""
    return np.array([(1.0 + omega) / 2.0, (1.0 - omega) / 2.0])


def shares_from(occurrences: Array) -> Array:
    """Find the shares (L,) that fit the occurrences (L,) of each space; of two, the first gets most."""
    if len(occurrences) == 2:
        first, second = occurrences
        return shares_of(float(np.clip((first - second) / (first + second), 0.0, 1.0)))
    return occurrences / occurrences.sum()


class Switch(NamedTuple):
    """Variational inference with the switch."""

    topic_prior: float  # Concentration of the Dirichlet prior of the topics; 0 takes the topics as parameters
    tol: float = 1e-4  # A document is done when its Dirichlet parameters change by less than this on average

    def expect(
        self, n: sp.csr_array, memory: Array, topics: Topics, max_steps: int, row_weights: Array | None = None
    ) -> Expectation:
        """E-step, started from `memory`, the Dirichlet parameters (D, K1 + ...) of all memberships."""
        index, gamma, sizes = entry_rows(n), memory, topics.sizes
        rows = (np.exp(expected_log(t)) if self.topic_prior > 0 else t for t in topics.spaces)
        table = np.vstack([share * t for share, t in zip(topics.shares, rows, strict=True)]).T

        def mix(gamma: Array) -> tuple[Array, Array, sp.csr_array]:
            """Geometric memberships (D, K1 + ...), the mixture of each word (nnz,), and ``n`` over it."""
            memberships = np.exp(np.hstack([expected_log(side) for side in split(gamma, sizes)]))
            mixture = products_at(memberships, table, index, n.indices).astype(float, copy=False)
            ratio = np.divide(n.data, mixture, out=np.zeros_like(mixture), where=mixture > 0)
            return memberships, mixture, sp.csr_array((ratio, n.indices, n.indptr), n.shape)

        memberships, mixture, ratio = mix(gamma)
        moving = np.ones(len(gamma), bool)
        for _ in range(max_steps):
            updated = topics.alpha + memberships * (ratio @ table)
            moving &= np.abs(updated - gamma).mean(axis=1) > self.tol
            gamma = np.where(moving[:, None], updated, gamma)
            memberships, mixture, ratio = mix(gamma)
            if not moving.any():
                break
        with np.errstate(divide="ignore"):
            bounds = np.bincount(index, n.data * np.log(mixture), n.shape[0]).astype(float)
        for side, prior in zip(split(gamma, sizes), split(topics.alpha, sizes), strict=True):
            bounds -= divergence(side, prior)
        if row_weights is not None:
            memberships, bounds = memberships * row_weights[:, None], bounds * row_weights
        expected = (table * (ratio.T @ memberships)).T
        return Expectation(gamma, bounds, tuple(np.split(expected, np.cumsum(sizes)[:-1])))

    def topic_bound(self, topics: Topics) -> float:
        """Compute the contribution of the topics' prior to the bound."""
        if self.topic_prior == 0:
            return 0.0
        return -float(sum(divergence(space, self.topic_prior).sum() for space in topics.spaces))

    def means(self, topics: Topics) -> Topics:
        """Return the same with the topics as probabilities."""
        return topics._replace(spaces=tuple(map(normalise, topics.spaces)))


# ---- functions of the Dirichlet distribution, and Eq. 10


def expected_log(parameters: Array) -> Array:
    """Return ``E[log p]`` under Dirichlet rows, shape (..., K) as given."""
    return psi(parameters) - psi(parameters.sum(axis=-1, keepdims=True))


def divergence(parameters: Array, prior: Array | float) -> Array:
    """Divergence (...) in nats of Dirichlet rows from the one of parameters `prior`, (K,) or K equal ones."""
    prior = np.broadcast_to(np.asarray(prior, dtype=float), parameters.shape[-1:])
    scale = gammaln(parameters.sum(axis=-1)) - gammaln(prior.sum()) + gammaln(prior).sum()
    apart = ((parameters - prior) * expected_log(parameters)).sum(axis=-1)
    return scale - gammaln(parameters).sum(axis=-1) + apart


def fit_concentrations(
    parameters: Array, start: Array, weights: Array | None = None, *, equal: bool = False
) -> Array:
    """Find the concentrations (K,) within 1e-4 ... 1e4, ``equal`` or one a component, that maximise Eq. 10.

    ``parameters`` (D, K) are the Dirichlet parameters of every document, ``weights`` (D,) how often each
    counts. The objective is concave.
    """
    K = len(start)
    if K == 1:
        return start
    slope = np.average(expected_log(parameters), axis=0, weights=weights)
    tied = np.ones((1, K)) if equal else np.eye(K)

    def loss(logs: Array) -> tuple[float, Array]:
        alpha = np.exp(logs @ tied)
        value = gammaln(alpha.sum()) - gammaln(alpha).sum() + alpha @ slope
        return -float(value), -tied @ (alpha * (psi(alpha.sum()) - psi(alpha) + slope))

    begin = np.log(np.clip(start, *_ALPHAS))[: len(tied)]
    limits = [np.log(_ALPHAS)] * len(tied)
    exact = {"ftol": 0, "gtol": 1e-10}
    found = minimize(loss, begin, jac=True, method="L-BFGS-B", bounds=limits, options=exact)
    return np.exp(found.x @ tied)


@settings
class FiniteM3(DensityMixin, CountEstimator):
    """Documents whose words have a topic in each of several topic spaces.

    A word of document d chooses a topic of each space by the document's memberships pi1, pi2, and is drawn
    from ``(1 + omega) / 2 * theta1 + (1 - omega) / 2 * theta2``, of L spaces from ``sum_l shares_l theta_l``
    (Eq. 7 and 2 of Jiang, Lim and Saxena, Multidimensional Membership Mixture Models, 2012, section 4.2).
    ``omega = 1`` is latent Dirichlet allocation with K1 topics.

    Parameters
    ----------
    n_components : sequence of two or more ints, or int, default=(10, 2)
        K1, K2 and so on; a single number is K1, with a second space of one common topic.
    omega : float in 0 ... 1, or sequence of L floats, optional
        For two spaces, how far the first outweighs the second; or the shares of all spaces, with sum one.
        Estimated by default.
    alpha : {"asymmetric", "symmetric"}, float or sequence of L floats, default="asymmetric"
        Concentration of the memberships: estimated for each topic, or for each space as in the paper (Eq.
        10); or numbers, one for all spaces or one for each.
    topic_prior : float, default=0.3
        Symmetric Dirichlet prior of the topics, which are then integrated out. 0 is maximum likelihood, the
        paper's choice, under which new words have probability zero.
    warm_up, max_iter, tol : int, int, float, default=10, 200, 1e-5
        First iterations, in which only the topics are estimated; most iterations, these included, which end
        when the bound rises by less than this fraction of it.
    max_doc_iter : int, default=15
        Most steps of an E-step.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    components_, alpha_ : ndarrays of shape (K1 + ... + KL, M) and (K1 + ... + KL,)
        The topics, first space first, whose rows sum to one, and concentrations of the memberships.
    weights_, omega_ : ndarray of shape (L,), float
        Shares of the spaces; for two, ``(1 + omega_) / 2`` and ``(1 - omega_) / 2``, else there is no omega_.
    labels_ : int ndarray of shape (D,)
        The topic of the first space that each training document has most of.
    lower_bound_, history_ : float, ndarray of shape (n_iter_,)
        Bound on the log-likelihood of the training documents, in nats (with the topics' prior), and its value
        at each iteration; it never falls.
    n_iter_, converged_, n_components_, n_features_in_ : int, bool, tuple of L ints, int

    Examples
    --------
    >>> import numpy as np
    >>> n = np.kron(np.eye(2), [[9, 9, 0], [9, 9, 0]]) + 1
    >>> model = FiniteM3((2, 1), random_state=0).fit(n)
    >>> model.components_.shape, bool(np.all(np.diff(model.history_) > -1e-9))
    ((3, 6), True)
    """

    n_components: int | Sequence[int] = (10, 2)
    _: KW_ONLY
    omega: float | Sequence[float] | None = None
    alpha: str | float | Sequence[float] = "asymmetric"
    topic_prior: float = 0.3
    warm_up: int = 10
    max_iter: int = 200
    tol: float = 1e-5
    max_doc_iter: int = 15
    random_state: Any = None

    score = CountEstimator.score

    def fit(self, X: Any, y: None = None, sample_weight: Any = None) -> "FiniteM3":
        """Estimate topics, omega and alpha from documents ``X`` (D, M) with weights ``sample_weight``."""
        check_settings(self)
        n = self._checked(X, "X", reset=True)
        weights = self._check_weights(sample_weight, n)
        topics = self._estimated(n, Switch(float(self.topic_prior)), weights)
        self.n_components_, self.components_ = topics.sizes, np.vstack(topics.spaces)
        self.alpha_, self.weights_ = topics.alpha, topics.shares
        if len(topics.shares) == 2:
            self.omega_ = topics.omega
        self.labels_ = self.predict(X)
        return self

    def predict(self, X: Any) -> NDArray[np.intp]:
        """Find the topic of the first space that each document has most of, shape (D,)."""
        return self.transform(X)[:, : self.n_components_[0]].argmax(axis=1)

    def transform(self, X: Any) -> Array:
        """Infer the expected memberships (D, K1 + ... + KL); each space's part of a row sums to one."""
        gamma = np.vstack([found.memory for found in self._infer(X)])
        sides = split(gamma, self.n_components_)
        return np.hstack([side / side.sum(axis=1, keepdims=True) for side in sides])

    def score_samples(self, X: Any) -> Array:
        """Lower bound of ``log p(document | alpha, topics, omega)`` (Eq. 8, 9), in nats, shape (D,)."""
        return np.concatenate([found.bounds for found in self._infer(X)])

    def perplexity(self, X: Any) -> float:
        """``exp(-score)`` of documents, the test of section 5.2 (upper bound; lower is better)."""
        return float(np.exp(-self.score(X)))

    def _infer(self, X: Any) -> Iterator[Expectation]:
        """E-step with the fitted topics fixed, for each block of documents."""
        check_is_fitted(self)
        spaces = np.split(np.asarray(self.components_, dtype=np.float64), np.cumsum(self.n_components_)[:-1])
        topics = Topics(tuple(spaces), self.weights_, self.alpha_)
        inference = Switch(topic_prior=0.0)
        for _, block in row_blocks(self._check_new(X)):
            yield inference.expect(block, _flat(block, topics), topics, max_steps=200)

    def _estimated(self, X: CountMatrix, inference: Switch, weights: Array | None) -> Topics:
        """Iterate until the bound stays; return the topics as probabilities."""
        topics = self._first_topics(X.shape[1])
        memories = [_flat(block, topics) for _, block in row_blocks(X)]
        bounds: list[float] = []
        self.converged_ = False
        for iteration in range(self.max_iter):
            warming = iteration < self.warm_up
            found = []
            for (rows, n), memory in zip(row_blocks(X), memories, strict=True):
                # from flat memberships; a document keeps its last ones if these give a higher bound
                kept = inference.expect(n, memory, topics, max_steps=0)
                fresh = inference.expect(n, _flat(n, topics), topics, self.max_doc_iter)
                better = np.where((fresh.bounds > kept.bounds)[:, None], fresh.memory, kept.memory)
                of_rows = None if weights is None else weights[rows]
                found.append(inference.expect(n, better, topics, 0, of_rows))
            memories = [result.memory for result in found]
            previous = bounds[-1] if bounds else -np.inf
            bounds.append(sum(float(result.bounds.sum()) for result in found) + inference.topic_bound(topics))
            self.converged_ = not warming and bounds[-1] - previous < self.tol * abs(bounds[-1])
            if self.converged_ or iteration == self.max_iter - 1:
                break
            stats = [sum(parts) for parts in zip(*(result.stats for result in found), strict=True)]
            prior = self.topic_prior
            topics = topics._replace(spaces=tuple(n + prior if prior > 0 else normalise(n) for n in stats))
            if self.omega is None and not warming:
                topics = topics._replace(shares=shares_from(np.array([counts.sum() for counts in stats])))
            if not warming and isinstance(self.alpha, str):
                equal, parts = self.alpha == "symmetric", (np.vstack(memories), topics.alpha)
                sides = zip(*(split(part, topics.sizes) for part in parts), strict=True)
                alphas = [fit_concentrations(side, start, weights, equal=equal) for side, start in sides]
                topics = topics._replace(alpha=np.concatenate(alphas))
        self.history_, self.lower_bound_, self.n_iter_ = np.array(bounds), bounds[-1], len(bounds)
        return inference.means(topics)

    def _sizes(self) -> tuple[int, ...]:
        given = np.atleast_1d(self.n_components).tolist()
        return (*given, 1) if len(given) == 1 else tuple(given)

    def _first_topics(self, n_words: int) -> Topics:
        sizes, omega = self._sizes(), cast(Any, self.omega)
        given = (1.0 / sizes[0], *[1.0] * (len(sizes) - 1)) if isinstance(self.alpha, str) else self.alpha
        alpha = np.repeat(np.broadcast_to(np.asarray(given, dtype=float), len(sizes)), sizes)
        drawn = random_state_of(self.random_state).gamma(100.0, 0.01, (sum(sizes), n_words))
        if omega is None:
            omega = _FIRST_OMEGA if len(sizes) == 2 else np.full(len(sizes), 1.0 / len(sizes))
        shares = shares_of(float(omega)) if np.ndim(omega) == 0 else np.array(omega, dtype=float)
        topics = Topics(tuple(np.split(drawn, np.cumsum(sizes)[:-1])), shares, alpha)
        return topics if self.topic_prior > 0 else Switch(0.0).means(topics)

    def _allowed(self) -> Iterator[Allowed]:
        sizes, L, named = np.asarray(self.n_components), len(self._sizes()), isinstance(self.alpha, str)
        are_whole = sizes.dtype.kind in "iu" and bool((sizes >= 1).all())
        spaces = "a whole number of at least 1, or one for each of two or more spaces"
        yield "n_components", are_whole and sizes.ndim < 2 and sizes.shape != (1,), spaces
        omega = np.asarray(np.full(L, 1 / L) if self.omega is None else self.omega, dtype=float)
        are_shares = omega.shape == (L,) and abs(omega.sum() - 1) < 1e-9
        fits = (are_shares or (omega.ndim == 0 and L == 2)) and bool(((omega >= 0) & (omega <= 1)).all())
        yield "omega", fits, f"None, {'lie in 0 ... 1, or be' if L == 2 else 'or'} {L} shares with sum 1"
        alpha = np.asarray(np.nan if self.alpha is None or named else self.alpha, dtype=float)
        fits = alpha.shape in ((), (L,)) and bool((np.isfinite(alpha) & (alpha > 0)).all())
        words = f"{' or '.join(map(repr, _NAMED_ALPHAS))}, or one or {L} positive finite numbers"
        yield "alpha", self.alpha in _NAMED_ALPHAS if named else fits, words
        least = {"topic_prior": 0, "tol": 0, "warm_up": 0, "max_iter": 1, "max_doc_iter": 1}
        for name, low in least.items():
            yield name, is_number(getattr(self, name)) and getattr(self, name) >= low, f"at least {low}"


def _flat(n: sp.csr_array, topics: Topics) -> Array:
    """Memberships (D, K1 + ... + KL) of documents about which nothing is known."""
    return np.ones((n.shape[0], sum(topics.sizes)))
