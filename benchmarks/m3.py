"""The comparisons of the paper on multidimensional membership mixtures, on what can be had.

Usage: python benchmarks/m3.py DATA [--parts toy iris topics ...] [--folds 5] [--seeds 20]

DATA is a folder with the count matrix ``text/cran.npz`` (or the folder ``text`` itself); only the parts
"topics" and "bounds" need it. tomotopy's HDP joins the topics when it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln, psi
from scipy.stats import multivariate_normal
from sklearn.datasets import load_iris
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.metrics import confusion_matrix, normalized_mutual_info_score
from sklearn.mixture import GaussianMixture

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.corpora import contexts, docstrings
from benchmarks.m3_printed import Eq6M3, fit_pairs
from benchmarks.measure import Table, limit_threads, machine, timed
from texseg.m3 import FiniteM3, HybridM3, InfiniteM3, OffsetGaussians, SharedGaussians

PARTS = ("toy", "iris", "topics", "contexts", "transfer", "bounds", "arrangement", "speed")
TOPIC_PRIOR = 0.3
TOPIC_PRIORS = (0.1, 0.2, 0.3, 0.5)
nmi = normalized_mutual_info_score


def separated_places(rng, number, box, distance):
    """Draw places at random, none nearer to another than `distance`."""
    while True:
        places = rng.uniform(-box, box, (number, 2))
        gaps = np.linalg.norm(places[:, None] - places, axis=-1) + np.eye(number) * distance
        if gaps.min() >= distance:
            return places


def toy(seed, shared, n_points=100):
    """Five means; two crossing covariances of which each mean has both, or one covariance a mean."""
    rng = np.random.default_rng(seed)
    means = separated_places(rng, 5, box=8, distance=3)
    if shared:
        covariances = np.array([np.diag([6, 0.03]), np.diag([0.03, 6])])
    else:
        roots = rng.normal(size=(5, 2, 2)) * rng.uniform(0.4, 1.2, (5, 1, 1))
        covariances = roots @ roots.swapaxes(1, 2) + 0.2 * np.eye(2)
    z1 = rng.integers(5, size=n_points)
    z2 = rng.integers(2, size=n_points) if shared else z1
    noise = np.einsum("nxy,ny->nx", np.linalg.cholesky(covariances)[z2], rng.standard_normal((n_points, 2)))
    pairs = [(c, d) for c in range(5) for d in range(len(covariances)) if shared or c == d]
    X = means[z1] + noise
    known = np.stack([multivariate_normal(means[c], covariances[d]).logpdf(X) for c, d in pairs], axis=1)
    return X, z1 * 5 + z2, known.argmax(axis=1)


MIXTURES = {
    "one-dimensional (omega 1)": {"omega": 1.0},
    "M3, omega sampled": {},
    "M3, omega 0.5": {"omega": 0.5},
    "M3, Eq. 6, omega 0.5": {"omega": 0.5, "model": Eq6M3},
}


ONE_START = {
    "one-dimensional, one start": {"omega": 1.0, "n_init": 1},
    "M3, omega sampled, one start": {"n_init": 1},
}


def mixture(options, scale, **more):
    """One of MIXTURES or ONE_START."""
    options = {"model": InfiniteM3} | more | options
    return options.pop("model")(SharedGaussians(scale=scale), **options)


def part_toy(args):
    print("\nGaussians with shared parameters and without (Fig. 1 and 3): NMI of pairs, mean over seeds.")
    print("samples: mean over the kept samples; known: best guess with the true parameters; K: mean numbers.")
    table = Table([("data", -11), ("model", -27), ("NMI", 6), ("samples", 8), ("known", 6), ("worse", 6),
                   ("K1", 5), ("K2", 5), ("s", 7)])  # fmt: skip
    for shared in (True, False):
        first = None
        for name, options in MIXTURES.items():
            scores, seconds = [], 0.0
            for seed in range(args.seeds):
                X, truth, known = toy(seed, shared)
                model = mixture(options, scale=0.05, n_sweeps=600, burn_in=300, random_state=seed)
                _, spent = timed(lambda model=model, X=X: model.fit(X))
                seconds += spent
                samples = np.mean([nmi(sample.pairs, truth) for sample in model.samples_])
                scores.append([nmi(model.labels_, truth), samples, nmi(known, truth), *model.n_components_])
            scores = np.array(scores)
            first = scores[:, 0] if first is None else first
            worse = f"{(scores[:, 0] < first).sum()}/{args.seeds}"
            means = scores.mean(axis=0).tolist()
            data = "shared" if shared else "not shared"
            table.row(data, name, *means[:3], worse, *means[3:], seconds)


def part_iris(args):
    print("\nIris, 150 flowers, 3 species; rows of the confusion matrix are species, columns labels.")
    X, species = load_iris(return_X_y=True)
    merged = np.minimum(species, 1)
    print(f"two species merged: NMI {nmi(merged, species):.3f}")
    for name, options in (MIXTURES | ONE_START).items():
        found = []
        for seed in range(10):
            model = mixture(options, scale=0.1, n_sweeps=300, burn_in=150, random_state=seed).fit(X)
            samples = np.mean([nmi(sample.pairs, species) for sample in model.samples_])
            found.append((nmi(model.labels_, species), samples, model))
        scores = [f[0] for f in found]
        print(
            f"{name}: NMI of pairs {np.mean(scores):.3f} ({min(scores):.3f} ... {max(scores):.3f}), of the"
            f" samples {np.mean([f[1] for f in found]):.3f}; numbers {[f[2].n_components_ for f in found]};"
            " of the first seed:"
        )
        print(confusion_matrix(species, found[0][2].labels_)[:3], flush=True)


def read_cran(data):
    folder = Path(data)
    path = folder / "cran.npz" if (folder / "cran.npz").exists() else folder / "text" / "cran.npz"
    n = sp.csr_array(sp.load_npz(path)).astype(float)
    return sp.csr_array(n[np.flatnonzero(n.sum(axis=1) > 0)])


def folds_of(n, n_folds):
    order = np.random.default_rng(0).permutation(n.shape[0])
    for k, test in enumerate(np.array_split(order, n_folds)):
        yield k, sp.csr_array(n[np.setdiff1d(order, test)]), sp.csr_array(n[test])


def lda_bounds(n, topics, alpha):
    """Variational bound of every document under topics (K, M) and a Dirichlet (K,), and memberships."""
    rows = np.repeat(np.arange(n.shape[0]), np.diff(n.indptr))
    gamma = np.ones((n.shape[0], len(alpha)))
    for _ in range(200):
        logs = psi(gamma) - psi(gamma.sum(axis=1, keepdims=True))
        mixture = np.einsum("ek,ke->e", np.exp(logs)[rows], topics[:, n.indices])
        ratio = sp.csr_array((n.data / mixture, n.indices, n.indptr), n.shape)
        updated = alpha + np.exp(logs) * (ratio @ topics.T)
        done = np.abs(updated - gamma).mean() < 1e-5
        gamma = updated
        if done:
            break
    logs = psi(gamma) - psi(gamma.sum(axis=1, keepdims=True))
    mixture = np.einsum("ek,ke->e", np.exp(logs)[rows], topics[:, n.indices])
    divergence = (
        gammaln(gamma.sum(axis=1)) - gammaln(alpha.sum()) + gammaln(alpha).sum()
        - gammaln(gamma).sum(axis=1) + ((gamma - alpha) * logs).sum(axis=1)
    )  # fmt: skip
    bounds = np.bincount(rows, n.data * np.log(mixture), n.shape[0]) - divergence
    return bounds, gamma / gamma.sum(axis=1, keepdims=True)


def halves_of(n):
    """Deal the occurrences of every document into two halves at random."""
    rng = np.random.default_rng(1)
    seen = sp.csr_array((rng.binomial(n.data.astype(int), 0.5).astype(float), n.indices, n.indptr), n.shape)
    return seen, sp.csr_array(n - seen)


def completion(seen, hidden, probabilities):
    """Perplexity of hidden occurrences under probabilities (D, M)."""
    entries = sp.coo_array(hidden)
    logs = entries.data * np.log(probabilities[entries.row, entries.col])
    return float(np.exp(-logs.sum() / hidden.sum()))


def fitted_m3(train, test, topic_prior=TOPIC_PRIOR, random_state=0, **options):
    model = FiniteM3(topic_prior=topic_prior, random_state=random_state, **options)
    _, seconds = timed(lambda: model.fit(train))
    seen, hidden = halves_of(test)
    memberships = model.transform(seen) * np.repeat(model.weights_, model.n_components_)
    total = completion(seen, hidden, memberships @ model.components_)
    return model.perplexity(test), total, seconds, f"shares {model.weights_.round(2).tolist()}"


def fitted_lda(train, test, K=25, topic_prior=None):
    model, seconds = timed(
        lambda: LatentDirichletAllocation(K, max_iter=50, topic_word_prior=topic_prior, random_state=0).fit(
            train
        )
    )
    topics = model.components_ / model.components_.sum(axis=1, keepdims=True)
    return (*lda_scores(test, topics, np.full(K, model.doc_topic_prior_)), seconds, "")


def with_chosen_prior(fit, train, test, **options):
    """Choose the topic prior on every tenth training document, then fit all of them with it."""
    held = np.arange(train.shape[0]) % 10 == 0
    inner, left_out = sp.csr_array(train[~held]), sp.csr_array(train[held])
    tried = [fit(inner, left_out, topic_prior=prior, **options) for prior in TOPIC_PRIORS]
    best = TOPIC_PRIORS[int(np.argmin([bound for bound, *_ in tried]))]
    bound, total, seconds, note = fit(train, test, topic_prior=best, **options)
    return bound, total, seconds + sum(spent for *_, spent, _ in tried), f"{note} prior {best}".strip()


def lda_scores(test, topics, alpha):
    seen, hidden = halves_of(test)
    bound = float(np.exp(-lda_bounds(test, topics, alpha)[0].sum() / test.sum()))
    return bound, completion(seen, hidden, lda_bounds(seen, topics, alpha)[1] @ topics)


def fitted_hdp(train, test):
    import tomotopy

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = tomotopy.HDPModel(initial_k=10, eta=TOPIC_PRIOR, seed=0)

        def run():
            for row in train:
                row = sp.coo_array(row)
                words = row.coords[-1]
                model.add_doc(np.repeat(words, row.data.astype(int)).astype(str).tolist())
            model.train(500, workers=1)

        _, seconds = timed(run)
    live = [k for k in range(model.k) if model.is_live_topic(k)]
    column = np.array([int(word) for word in model.used_vocabs])
    sizes = np.array([model.get_count_by_topics()[k] for k in live], float)
    topics = np.full((len(live), train.shape[1]), TOPIC_PRIOR)
    for row, k in enumerate(live):
        distribution = np.asarray(model.get_topic_word_dist(k))
        topics[row, column] = distribution * (sizes[row] + TOPIC_PRIOR * len(column))
    topics /= topics.sum(axis=1, keepdims=True)
    alpha = model.alpha * sizes / sizes.sum()
    return (*lda_scores(test, topics, np.maximum(alpha, 1e-3)), seconds, f"{len(live)} topics")


def part_topics(args):
    print("\nTopics on cran: perplexity of new documents. bound: exp(-variational bound / words), topics at")
    print("their means; completion: half the words of each new document given the other half.")
    print(f"Topic prior {TOPIC_PRIOR} (same prior), or the best of {TOPIC_PRIORS} for a tenth of the")
    print("training documents (prior chosen), or scikit-learn's own 1 / K. Folds split the documents.")
    methods = {
        "FiniteM3 20 + 5": partial(fitted_m3, n_components=(20, 5)),
        "FiniteM3 20 + 5, prior chosen": partial(with_chosen_prior, fitted_m3, n_components=(20, 5)),
        "FiniteM3 20 + 5, symmetric alpha": partial(fitted_m3, n_components=(20, 5), alpha="symmetric"),
        "FiniteM3 20 + 1": partial(fitted_m3, n_components=(20, 1)),
        "LDA 25, scikit-learn": fitted_lda,
        "LDA 25, scikit-learn, same prior": partial(fitted_lda, topic_prior=TOPIC_PRIOR),
        "LDA 25, scikit-learn, prior chosen": partial(with_chosen_prior, fitted_lda),
        "LDA 25, FiniteM3 with omega 1": partial(fitted_m3, n_components=(25, 1), omega=1.0),
        "LDA 100, scikit-learn, same prior": partial(fitted_lda, K=100, topic_prior=TOPIC_PRIOR),
    }
    if importlib.util.find_spec("tomotopy"):
        methods["HDP, tomotopy"] = fitted_hdp
    table = Table([("fold", 4), ("model", -40), ("bound", 8), ("completion", 10), ("s", 7), ("found", -36)])
    scores = {name: [] for name in methods}
    for k, train, test in folds_of(read_cran(args.data), 5):
        if k >= args.folds:
            break
        for name, fit in methods.items():
            if not name.startswith(tuple(args.methods)):
                continue
            bound, total, seconds, note = fit(train, test)
            scores[name].append((bound, total))
            table.row(k, name, bound, total, seconds, note)
    found = {name: np.array(values) for name, values in scores.items() if values}
    ours = found.get("FiniteM3 20 + 5")
    for name, values in found.items():
        line = f"{name}: mean {values[:, 0].mean():.1f} / {values[:, 1].mean():.1f}"
        if ours is not None:
            below = (ours < values).sum(axis=0)
            line += f"; FiniteM3 20 + 5 is below it on {below[0]} / {below[1]} of {len(values)} folds"
        print(line)


def part_contexts(args):
    print("\nWhere a second or third space might show its worth: 32 topics in one space or in several.")
    print("contexts: a word by its left and right neighbours, two kinds of columns. Folds split the rows,")
    print("two seeds each; bound and completion as above, topic prior .1; below: folds x seeds with a bound")
    print("below that of the one space of 32.")
    splits = {"32": (32, 1)}
    splits |= {" + ".join(map(str, sizes)): sizes for sizes in ((31, 1), (24, 8), (16, 16), (16, 8, 8))}
    table = Table([("set", -10), ("topics", -12), ("bound", 7), ("completion", 10), ("below", 6), ("s", 6)])
    for name, make in (("contexts", contexts), ("docstrings", docstrings)):
        counts, scores = make()[0].astype(float), {}
        for kind, sizes in splits.items():
            options = {"n_components": sizes} | ({"omega": 1.0} if kind == "32" else {})
            scores[kind] = np.array(
                [
                    fitted_m3(train, test, topic_prior=0.1, random_state=seed, **options)[:3]
                    for k, train, test in folds_of(counts, 5)
                    for seed in range(2)
                    if k < args.folds
                ]
            )
            bound, total, seconds = scores[kind].mean(axis=0).tolist()
            below = int((scores[kind][:, 0] < scores["32"][:, 0]).sum())
            table.row(name, kind, bound, total, f"{below}/{len(scores[kind])}", seconds)


def part_transfer(args):
    print("\nFew documents of one kind, 80 of another (section 5.2, Fig. 5): descriptions of functions by")
    print("their words. Trained on 0 ... 80 of scipy.stats and 80 of one of five other kinds, tested on 47")
    print("others of scipy.stats: perplexity (bound) and completion, mean over the kinds; topic prior .3.")
    counts, names, _ = docstrings()
    kinds = np.array([name.rpartition(".")[0] for name in names])
    rng, target = np.random.default_rng(0), "scipy.stats"
    sizes = {kind: int((kinds == kind).sum()) for kind in sorted(set(kinds.tolist()) - {target})}
    others = sorted(sizes, key=lambda kind: -sizes[kind])[:5]
    own = rng.permutation(np.flatnonzero(kinds == target))
    test, own = counts[np.sort(own[:47])].astype(float), own[47:]
    methods = {
        "FiniteM3 10 + 2": partial(fitted_m3, n_components=(10, 2)),
        "LDA 12, FiniteM3 with omega 1": partial(fitted_m3, n_components=(12, 1), omega=1.0),
        "LDA 12, scikit-learn": partial(fitted_lda, K=12, topic_prior=TOPIC_PRIOR),
        "FiniteM3 20 + 5": partial(fitted_m3, n_components=(20, 5)),
        "LDA 25, FiniteM3 with omega 1": partial(fitted_m3, n_components=(25, 1), omega=1.0),
    }
    if importlib.util.find_spec("tomotopy"):
        methods["HDP, tomotopy"] = fitted_hdp
    print("other kinds:", ", ".join(f"{kind} ({sizes[kind]})" for kind in others))
    few = (0, 10, 40, 80)
    table = Table([("model", -30), *((f"{n}", 6) for n in few), *((f"c {n}", 6) for n in few), ("s", 5)])
    for name, fit in methods.items():
        runs = np.array(
            [
                [
                    fit(sp.csr_array(counts[np.concatenate([own[:n], many])].astype(float)), test)[:3]
                    for n in few
                ]
                for kind in others
                for many in [np.random.default_rng(1).permutation(np.flatnonzero(kinds == kind))[:80]]
            ]
        )  # (kinds, few, measures)
        means = runs.mean(axis=0)
        table.row(name, *means[:, 0].tolist(), *means[:, 1].tolist(), float(means[:, 2].mean()))
        if name.startswith("FiniteM3"):
            ours = runs
        elif name.startswith("LDA") and "omega" in name:
            below = (ours[..., 0] < runs[..., 0]).sum(axis=0).tolist()
            print(f"    the M3 is below it for {below} of {len(others)} kinds")


def part_bounds(args):
    print("\nBounds and M-steps on 300 documents of cran, maximum likelihood, K = 8 + 3.")
    n = sp.csr_array(read_cran(args.data)[:300])
    columns = [("steps", 5), ("algorithm", -10), ("bound", 12), ("by switch", 12), ("omega", 6), ("s", 7)]
    table = Table(columns)
    for steps in (6, 40):
        model = FiniteM3(
            (8, 3), topic_prior=0.0, alpha=(1 / 8, 1.0), warm_up=20, max_iter=steps, tol=0, random_state=0
        )
        _, seconds = timed(lambda model=model: model.fit(n))
        by_switch = float(model.score_samples(n).sum())
        table.row(steps, "switch", model.lower_bound_, by_switch, model.omega_, seconds)
        for name in ("pairs", "penalty") if steps == 6 else ("pairs",):
            (topics, bounds), seconds = timed(
                lambda steps=steps, name=name: fit_pairs(n, (8, 3), steps, name == "penalty", warm_up=20)
            )
            model.components_, model.weights_ = np.vstack(topics.spaces), topics.shares
            by_switch = float(model.score_samples(n).sum())
            table.row(steps, name, bounds[-1], by_switch, topics.omega, seconds)


def arrangement(seed, n_points=200):
    """Things round six people in three usages, the same for all: where a thing is, and both memberships."""
    rng = np.random.default_rng(seed)
    people = separated_places(rng, 6, box=8, distance=3.5)
    usages = np.array([[0.0, 0.0], [1.5, 0.5], [-0.5, 1.8]])
    z1, z2 = rng.integers(6, size=n_points), rng.integers(3, size=n_points)
    return people[z1] + usages[z2] + 0.25 * rng.standard_normal((n_points, 2)), z1, z2


def part_arrangement(args):
    print("\nA synthetic stand-in for object arrangement: 6 human poses x 3 usages, 200 things, 5 seeds;")
    print("NMI with poses, usages, pairs; mean log-density of 2000 new things.")
    table = Table([("model", -34), ("poses", 6), ("usages", 6), ("pairs", 6), ("density", 8), ("s", 7)])
    rows = {"hybrid M3": [], "one DP (omega 1)": [], "finite mixture, 18 Gaussians": []}
    for seed in range(5):
        X, z1, z2 = arrangement(seed)
        new = arrangement(seed, 2200)[0][200:]
        family = OffsetGaussians(offset_covariance=0.05, scale=0.003)
        hybrid = HybridM3(3, family=family, n_start=10, n_init=10, random_state=seed)
        _, spent = timed(lambda m=hybrid, X=X: m.fit(X))
        first, second = hybrid.memberships_.T
        rows["hybrid M3"].append(
            (nmi(first, z1), nmi(second, z2), nmi(hybrid.labels_, z1 * 3 + z2), hybrid.score(new), spent)
        )
        single = InfiniteM3(SharedGaussians(scale=0.003), omega=1.0, n_start=18, random_state=seed)
        finite = GaussianMixture(18, n_init=5, reg_covar=1e-3, random_state=seed)
        for name, model in (("one DP (omega 1)", single), ("finite mixture, 18 Gaussians", finite)):
            labels, spent = timed(lambda m=model, X=X: m.fit_predict(X))
            pairs = nmi(labels, z1 * 3 + z2)
            rows[name].append((nmi(labels, z1), nmi(labels, z2), pairs, float(model.score(new)), spent))
    for name, values in rows.items():
        table.row(name, *np.mean(values, axis=0).tolist())


def part_speed(args):
    print("\nGibbs sampling, 10,000 points in two dimensions: CPU seconds a sweep and of one run of 200.")
    rng = np.random.default_rng(0)
    means = rng.uniform(-10, 10, (5, 2))
    z1, z2 = rng.integers(5, size=10_000), rng.integers(2, size=10_000)
    X = means[z1] + np.array([[2.4, 0.17], [0.17, 2.4]])[z2] * rng.standard_normal((10_000, 2))
    table = Table([("model", -27), ("a sweep", 8), ("200", 7), ("K1", 4), ("K2", 4), ("pairs", 6)])
    for name, options in MIXTURES.items():
        model = mixture(options, scale=0.05, n_sweeps=200, n_init=1, random_state=0)
        _, seconds = timed(lambda model=model: model.fit(X))
        K1, K2 = model.n_components_
        table.row(name, seconds / 200, seconds, K1, K2, int(model.history_.n_pairs[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", nargs="?", help="folder with text/cran.npz")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument(
        "--methods", nargs="+", default=[""], help="rows of the part topics that begin so, all by default"
    )
    parser.add_argument("--seeds", type=int, default=20)
    args = parser.parse_args()
    if args.data is None and {"topics", "bounds"} & set(args.parts):
        parser.error("DATA is needed for the parts topics and bounds")
    limit_threads(1)  # with two, waiting threads of BLAS burn five times the CPU seconds in L-BFGS
    print(machine(1))
    for part in args.parts:
        globals()[f"part_{part}"](args)


if __name__ == "__main__":
    main()
