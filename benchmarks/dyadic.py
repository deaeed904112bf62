"""How well the family of models predicts and clusters counts: python benchmarks/dyadic.py DATA.

DATA is the folder with `cran.npz`, `cstr.npz`, `toy_blocks.npz` (and the `.labels.txt` of the last two).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Table, limit_threads, machine, memory_above_imports, timed
from texseg.counts.matrix import split_counts
from texseg.fitting.anneal import anneal
from texseg.models import ACM, HACM, SCM, SMM, heldout_log_likelihood
from texseg.models.base import normalise
from texseg.models.scm import mutual_information
from texseg.models.smm import AspectModel

FRACTIONS = [0.8, 0.1, 0.1]
# the memo's Table 2 on its own word list: (beta, perplexity), ten-fold cross-validation
MEMO = {
    "SMM": {8: (0.88, 482), 16: (0.85, 431), 32: (0.83, 386), 64: (0.79, 360), 128: (0.78, 353)},
    "ACM": {8: (0.09, 527), 16: (0.07, 482), 32: (0.07, 452), 64: (0.06, 527), 128: (0.04, 663)},
    "HACM": {8: (0.18, 511), 16: (0.14, 471), 32: (0.12, 438), 64: (0.11, 422), 128: (0.10, 410)},
    "SCM": {8: (0.67, 615), 16: (0.60, 543), 32: (0.53, 506), 64: (0.48, 477), 128: (0.45, 462)},
}
MODELS: dict[str, Callable[[int, int], Any]] = {
    "SMM": lambda K, seed: SMM(K, beta="auto", n_init=3, random_state=seed),
    "ACM": lambda K, seed: ACM(K, beta="auto", n_init=4, random_state=seed),
    "HACM": lambda K, seed: HACM(K, beta="auto", n_init=2, random_state=seed),
    "SCM": lambda K, seed: SCM(K, K, beta="auto", n_init=4, random_state=seed),
}


def splits(path: Path, seeds: int) -> list[list[sp.csr_array]]:
    """Deal the occurrences out as training, validation and test, once a seed."""
    counts = sp.load_npz(path)
    out = []
    for seed in range(seeds):
        parts = split_counts(counts, FRACTIONS, seed)
        for part in parts:
            part.eliminate_zeros()
        out.append(parts)
    return out


def perplexity(mixing: NDArray, profiles: NDArray, test: sp.csr_array) -> float:
    """Perplexity with the package's own floor, the same for all programs."""
    return float(np.exp(-heldout_log_likelihood(normalise(mixing), normalise(profiles), test)))


def nmf(train: sp.csr_array, K: int, seed: int) -> tuple[NDArray, NDArray]:
    """scikit-learn's NMF with the Kullback-Leibler loss: PLSA without temperature."""
    from sklearn.decomposition import NMF

    with np.errstate(all="ignore"):
        model = NMF(K, init="random", solver="mu", beta_loss="kullback-leibler", max_iter=300, tol=0)
        W = model.set_params(random_state=seed).fit_transform(train)
    return W * model.components_.sum(axis=1), model.components_


def sklearn_lda(train: sp.csr_array, K: int, seed: int) -> tuple[NDArray, NDArray]:
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(K, max_iter=50, random_state=seed)
    return model.fit_transform(train), model.components_


def tomotopy_lda(train: sp.csr_array, K: int, seed: int) -> tuple[NDArray, NDArray]:
    import tomotopy

    model = tomotopy.LDAModel(k=K, seed=seed)
    rows = [i for i in range(train.shape[0]) if train.indptr[i] < train.indptr[i + 1]]
    for i in rows:
        part = slice(train.indptr[i], train.indptr[i + 1])
        model.add_doc([str(j) for j in np.repeat(train.indices[part], train.data[part].astype(int))])
    model.train(1000, workers=1)
    mixing, profiles = np.full((train.shape[0], K), 1.0 / K), np.zeros((K, train.shape[1]))
    mixing[rows] = [document.get_topic_dist() for document in model.docs]
    words = np.array([int(word) for word in model.used_vocabs])
    for k in range(K):
        profiles[k, words] = model.get_topic_word_dist(k)
    return mixing, profiles


PEERS = {"NMF-KL": nmf, "LDA (scikit-learn)": sklearn_lda, "LDA (tomotopy)": tomotopy_lda}


def print_perplexities(path: Path, sizes: Sequence[int], seeds: int) -> None:
    """Table 2 of the memo beside ours."""
    print(
        f"\nTest perplexity on {path.stem}, {seeds} splits 80/10/10 of occurrences; temperature by validation"
    )
    table = Table(
        [("model", -8), ("K", 4), ("beta", 6), ("perpl.", 7), ("CPU s", 7), ("memo b", 7), ("memo", 5)]
    )
    data = splits(path, seeds)
    for name, make in MODELS.items():
        for K in sizes:
            runs = []
            for seed, (train, validation, test) in enumerate(data):
                model, seconds = timed(
                    lambda make=make, K=K, seed=seed, train=train, validation=validation: make(K, seed).fit(
                        train, validation=validation
                    )
                )
                runs.append((model.beta_, model.perplexity(test), seconds))
            table.row(name, K, *map(float, np.mean(runs, axis=0)), *MEMO[name].get(K, (None, None)))


def print_peers(path: Path, sizes: Sequence[int], seeds: int) -> None:
    """Other programs on the same splits (they take no validation data; the training part is the same)."""
    print("\nOther programs, same splits, same floor")
    table = Table([("program", -20), ("K", 4), ("perpl.", 8), ("CPU s", 8)])
    for name, fit in PEERS.items():
        for K in sizes:
            runs = []
            for seed, (train, _, test) in enumerate(splits(path, seeds)):
                try:
                    factors, seconds = timed(lambda fit=fit, K=K, seed=seed, train=train: fit(train, K, seed))
                except ModuleNotFoundError:
                    break
                runs.append((perplexity(*factors, test), seconds))
            table.row(name, K, *(map(float, np.mean(runs, axis=0)) if runs else ["not installed"]))


def print_predictive(path: Path, sizes: Sequence[int], seeds: int) -> None:
    """Fig. 8: predictive EM against plain EM at beta = 1, both to convergence."""
    print("\nPlain and predictive EM for the SMM at beta = 1, 100 steps, test perplexity")
    table = Table([("K", 4), ("plain", 8), ("predictive", 11)])
    for K in sizes:
        runs = []
        for seed, (train, _, test) in enumerate(splits(path, seeds)):
            pair = (SMM(K, predictive=p, tol=0, random_state=seed).fit(train) for p in (False, True))
            runs.append([model.perplexity(test) for model in pair])
        table.row(K, *map(float, np.mean(runs, axis=0)))


def print_over_relaxation(path: Path, sizes: Sequence[int]) -> None:
    """Section 5.3: steps to the likelihood of 100 plain steps."""
    print("\nOver-relaxed EM for the SMM: steps to the free energy of 100 plain steps")
    table = Table([("beta", 6), *((f"K={K}", 7) for K in sizes), ("mean ratio", 11)])
    train = splits(path, 1)[0][0]
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
    model = SCM(K, L, kind, random_state=seed).fit(counts)
    return model.row_labels_, model.column_labels_


def random_counts(n_rows: int, n_columns: int, entries: int, seed: int = 0) -> sp.csr_array:
    """Sparse counts without structure; a few entries fall on each other."""
    rng = np.random.default_rng(seed)
    indptr = np.linspace(0, entries, n_rows + 1).astype(np.int64)
    out = sp.csr_array((np.ones(entries), rng.integers(0, n_columns, entries), indptr), (n_rows, n_columns))
    out.sum_duplicates()
    return out


def print_scale() -> None:
    """Memory and time a step of the SMM on 100,000 x 50,000."""
    print("\nSMM on 100,000 x 50,000 sparse counts: one EM step")
    table = Table([("non-zeros", 11), ("K", 4), ("s / step", 9), ("ns / (nz K)", 12), ("peak MB", 8)])
    for entries, K in ((2_500_000, 32), (5_000_000, 32), (10_000_000, 32), (10_000_000, 64)):
        counts = random_counts(100_000, 50_000, entries)
        model = AspectModel()
        params = model.initial(counts, K, np.random.RandomState(0))
        peak = memory_above_imports(lambda model=model, c=counts, p=params: model.step(c, p, 0.8))
        start = time.process_time()
        model.step(counts, params, 0.8)
        seconds = time.process_time() - start
        table.row(counts.nnz, K, seconds, 1e9 * seconds / (counts.nnz * K), round(peak / 1e6))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--sizes", default="8,16,32,64,128", help="numbers of clusters, with commas")
    parser.add_argument("--seeds", type=int, default=5)
    parts = ["perplexity", "peers", "predictive", "relaxation", "coclustering", "scale"]
    parser.add_argument("--only", default=",".join(parts), help=f"of {', '.join(parts)}, with commas")
    arguments = parser.parse_args()
    sizes, chosen = [int(K) for K in arguments.sizes.split(",")], arguments.only.split(",")
    limit_threads(1)
    print(machine(1))
    cran = arguments.data / "cran.npz"
    if "perplexity" in chosen:
        print_perplexities(cran, sizes, arguments.seeds)
    if "peers" in chosen:
        print_peers(cran, sizes, arguments.seeds)
    if "predictive" in chosen:
        print_predictive(cran, [K for K in sizes if K <= 32], min(arguments.seeds, 2))
    if "relaxation" in chosen:
        print_over_relaxation(cran, sizes)
    if "coclustering" in chosen:
        print_coclustering(arguments.data, arguments.seeds)
    if "scale" in chosen:
        print_scale()


if __name__ == "__main__":
    main()
