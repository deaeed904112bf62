"""The driver: schedules, phase transitions, monotone free energy, growth, levels, validation."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cluster import kmeans_plusplus

from benchmarks.pyramid import aggregate, coarse_to_fine, of_cells
from texseg.counts.matrix import WindowedCounts
from texseg.fitting.anneal import Transition, anneal, critical_beta, geometric_schedule, last_of
from texseg.fitting.assignment import ArgMax, PottsField
from texseg.fitting.moves import grow
from texseg.models.acm import ACM, HistogramClustering, Profiles
from texseg.models.hacm import HierarchicalClustering, Tree
from texseg.models.pmm import ProductAspectModel
from texseg.models.scm import TwoSidedClustering
from texseg.models.smm import AspectModel


def planted(seed=0, per_cluster=40, occurrences=60, K=3, M=12):
    """Rows of K clusters with profiles far apart; returns counts and truth."""
    rng = np.random.RandomState(seed)
    profiles = rng.dirichlet(np.full(M, 0.3), size=K)
    truth = np.repeat(np.arange(K), per_cluster)
    n = np.array([rng.multinomial(occurrences, profiles[k]) for k in truth], dtype=float)
    return n, truth


def same_partition(labels, truth):
    return len(set(zip(labels, truth, strict=True))) == len(set(labels)) == len(set(truth))


def scene(seed=0, H=24, W=30):
    """An image operator: left and right half have different bins; returns it and the truth."""
    rng = np.random.RandomState(seed)
    truth = np.repeat([[0] * (W // 2) + [1] * (W // 2)], H, axis=0)
    bins = np.stack([np.clip(rng.binomial(7, np.where(truth, 0.3, 0.6)), 0, 7) for _ in range(2)])
    return WindowedCounts(bins.astype(np.uint8), window=5, n_bins=8), truth


def count_types():
    n, _ = planted()
    image, _ = scene()
    return {
        "dense": n,
        "float32": n.astype(np.float32),
        "csr": sp.csr_array(n),
        "fractional": n / 7.3,
        "image": image,
        "coarse image": aggregate(image, np.arange(720) // 4).counts,
    }


def start_of(name, n, rng):
    """A model, and random parameters of it for three clusters."""
    acm = HistogramClustering()
    if name == "smm":
        return AspectModel(), AspectModel().initial(n, 3, rng)
    if name == "acm":
        return acm, acm.initial(n, 3, rng, spread=0.5)
    if name == "acm-hard":
        return HistogramClustering(ArgMax()), acm.initial(n, 3, rng, spread=0.5)
    if name == "hacm":
        model = HierarchicalClustering(tree=Tree([-1, 0, 0, 1, 1]))
        flat = acm.initial(n, 3, rng, spread=0.5)
        groups = getattr(n, "groups", np.zeros(n.shape[1], int))
        return model, model.start_from(flat.profiles, flat.weights, groups)
    sides = rng.dirichlet(np.ones(3), n.shape[0]), rng.dirichlet(np.ones(3), n.shape[1])
    model = {"pmm": ProductAspectModel(), "scm": TwoSidedClustering()}.get(name, TwoSidedClustering(ArgMax()))
    return model, model.start_from(n, *sides)


MODELS = ["smm", "pmm", "acm", "acm-hard", "scm", "scm-hard", "hacm"]


@pytest.mark.parametrize("over_relax", [False, True])
@pytest.mark.parametrize("kind", list(count_types()))
@pytest.mark.parametrize("name", MODELS)
def test_free_energy_never_rises_at_fixed_temperature(name, kind, over_relax):
    n = count_types()[kind]
    rng = np.random.RandomState(1)
    model, start = start_of(name, n, rng)
    for beta in (1.0, 0.4):
        run = anneal(model, n, [beta], start=start, rng=rng, perturbation=0, over_relax=over_relax, tol=1e-9)
        F = np.array([state.free_energy for state in itertools.islice(run, 25)])
        assert (np.diff(F) <= 0).all()


@pytest.mark.parametrize("name", MODELS)
def test_plain_steps_lower_the_free_energy_without_being_taken_back(name):
    """The driver would end a run whose step raises F; here every single step is made by hand."""
    n, _ = planted()
    model, params = start_of(name, n, np.random.RandomState(2))
    F, posteriors = [], None
    for _ in range(25):
        result = model.step(n, params, 0.7, posteriors)
        params, posteriors = result.params, result.posteriors
        F.append(result.free_energy)
    assert (np.diff(F) <= 1e-10 * np.abs(F[:-1])).all()


def test_free_energy_never_rises_in_the_potts_field():
    image, _ = scene()
    model = HistogramClustering(PottsField((24, 30), strength=3.0))
    rng = np.random.RandomState(0)
    run = anneal(model, image, [0.5], start=model.initial(image, 3, rng, spread=0.5), rng=rng, tol=1e-9)
    F = [state.free_energy for state in run]
    assert len(F) > 3
    assert (np.diff(F) <= 0).all()


def test_over_relaxation_saves_steps():
    n, _ = planted(occurrences=8)
    rng = np.random.RandomState(3)
    start = AspectModel().initial(n, 3, rng)

    def run(over_relax, max_steps):
        keep = {"start": start, "rng": rng, "perturbation": 0, "tol": 0}
        return list(anneal(AspectModel(), n, [1.0], over_relax=over_relax, max_steps=max_steps, **keep))

    goal = run(False, 120)[-1].free_energy
    steps = next(state.step for state in run(True, 120) if state.free_energy <= goal)
    assert steps <= 120 / 1.5


# ---- schedule and transitions


def test_schedule_ends_where_it_should():
    betas = geometric_schedule(0.1, 1.0, 0.8)
    np.testing.assert_allclose(np.divide(betas[1:-1], betas[:-2]), 1 / 0.8)
    assert betas[0] == 0.1
    assert betas[-1] == 1.0
    assert geometric_schedule(2.0, 1.0) == [1.0]


def test_a_run_starts_where_there_is_just_one_cluster():
    """Colder, the first transition would be missed; much hotter, steps would be spent on a single cluster."""
    n, _ = planted()
    model = HistogramClustering()
    critical = critical_beta(model, n, np.random.RandomState(0))
    states = list(anneal(model, n, n_clusters=3, rng=np.random.RandomState(0)))
    assert 0.7 * critical < states[0].beta < critical
    assert [state.n_distinct for state in states if state.converged][0] == 1


def dense_critical_beta(n):
    """1 / largest eigenvalue of the Fisher-weighted covariance, written out."""
    q = n.sum(axis=0) / n.sum()
    residual = n - np.outer(n.sum(axis=1), q)
    A = residual.T @ residual / n.sum() / q
    return 1 / np.linalg.eigvals(A).real.max()


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_critical_temperature_against_dense_eigenvalues(kind):
    n, _ = planted()
    matrix = sp.csr_array(n) if kind == "csr" else n
    model = HistogramClustering()
    found = critical_beta(model, matrix, np.random.RandomState(0))
    assert found == pytest.approx(dense_critical_beta(n), rel=0.02)


def test_one_profile_above_the_critical_temperature_and_two_below():
    n, _ = planted()
    model = HistogramClustering()
    critical = critical_beta(model, n, np.random.RandomState(0))
    for factor, expected in ((0.9, 1), (1.2, 2)):
        rng = np.random.RandomState(0)
        start = model.initial(n, 2, rng, spread=0.1)
        run = anneal(model, n, [factor * critical], start=start, rng=rng, tol=1e-12, max_steps=400)
        assert last_of(run).n_distinct == expected


def test_rows_all_alike_have_no_transition():
    n = np.tile([3.0, 2.0, 1.0], (10, 1))
    assert critical_beta(HistogramClustering(), n, np.random.RandomState(0)) > 1e6


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_twice_the_counts_at_twice_the_temperature(kind):
    n, _ = planted()
    if kind == "csr":
        n = sp.csr_array(n)
    model = HistogramClustering()
    runs = [
        last_of(anneal(model, m, [b / 2, b], n_clusters=3, rng=np.random.RandomState(0)))
        for m, b in ((n, 0.2), (2 * n, 0.1))
    ]
    np.testing.assert_allclose(runs[0].posteriors, runs[1].posteriors, atol=1e-9)


def test_default_schedule_finds_the_clusters():
    n, truth = planted()
    end = last_of(anneal(HistogramClustering(), n, n_clusters=3, rng=np.random.RandomState(0)))
    assert same_partition(end.posteriors.argmax(axis=1), truth)
    assert end.beta == 1.0
    assert end.converged


def test_one_cluster_needs_no_transition():
    n = np.tile([3.0, 2.0, 1.0], (10, 1))
    end = last_of(anneal(HistogramClustering(), n, n_clusters=1, rng=np.random.RandomState(0)))
    np.testing.assert_allclose(end.params.profiles, [[1 / 2, 1 / 3, 1 / 6]])


# ---- growth


@pytest.mark.parametrize("kind", ["dense", "csr", "float32"])
def test_growth_finds_planted_clusters_on_the_way_up_and_down(kind):
    n, truth = planted(K=4)
    n = {"dense": n, "csr": sp.csr_array(n), "float32": n.astype(np.float32)}[kind]
    model = HistogramClustering(ArgMax())
    states = list(grow(model, n, 4, rng=np.random.RandomState(0)))
    sizes = [len(state.params.weights) for state in states]
    assert sizes == [1, 2, 3, 4, 5, 6, 7, 6, 5, 4, 3, 2, 1]
    for state in states:
        if len(state.params.weights) == 4:
            assert same_partition(state.Q.argmax(axis=1), truth)


def test_growth_on_an_image_separates_its_halves():
    image, truth = scene()
    states = list(grow(HistogramClustering(ArgMax()), image, 2, n_extra=1, rng=np.random.RandomState(0)))
    best = min((s for s in states if len(s.params.weights) == 2), key=lambda s: s.free_energy)
    labels = best.Q.argmax(axis=1)
    agreement = (labels == truth.ravel()).mean()
    assert max(agreement, 1 - agreement) > 0.95


def from_rows(n, rows):
    """Profiles of some rows, mixed with the marginal, since a single row has zeros."""
    shares = n[rows] / n[rows].sum(axis=1, keepdims=True)
    return Profiles((shares + n.sum(axis=0) / n.sum()) / 2, np.full(len(rows), 1 / len(rows)))


def test_growth_reaches_the_best_of_many_starts():
    """Hard clustering of overlapping groups: no random start may end below the grown one."""
    n, _ = planted(seed=5, K=6, occurrences=25, M=8)
    model, rng = HistogramClustering(ArgMax()), np.random.RandomState(0)
    grown = min(s.free_energy for s in grow(model, n, 6, rng=rng) if len(s.params.weights) == 6)
    starts = [from_rows(n, kmeans_plusplus(n, 6, random_state=rng)[1]) for _ in range(30)]
    ends = [last_of(anneal(model, n, [1.0], start=s, rng=rng, perturbation=0)).free_energy for s in starts]
    assert grown <= min(ends) * (1 + 1e-4)


@pytest.mark.parametrize("seed", [3, 4, 9])
def test_of_grown_partitions_the_one_of_lowest_free_energy_is_kept(seed):
    """Every number is visited on the way up and on the way down; either may be the better."""
    n, _ = planted(seed, per_cluster=12, occurrences=25, K=8, M=8)
    states = grow(HistogramClustering(ArgMax()), n, 8, rng=np.random.RandomState(0))
    visited = [state.free_energy for state in states if len(state.params.weights) == 8]
    assert len(visited) == 2 and max(visited) > min(visited) + 0.1
    model = ACM(8, assignment="hard", random_state=0).fit(n)
    assert model.history_[-1].free_energy == pytest.approx(min(visited), abs=0.01)


def test_growth_of_free_energy_states_is_consistent():
    n, _ = planted(K=4)
    model = HistogramClustering(ArgMax())
    for state in grow(model, n, 4, rng=np.random.RandomState(0)):
        direct = -(state.Q * model.scores(n, state.params)).sum()
        assert state.free_energy == pytest.approx(direct, rel=1e-6)


def test_growth_stops_when_nothing_can_be_split():
    n = np.repeat([[5.0, 1.0, 0.0], [0.0, 1.0, 5.0]], 10, axis=0)
    states = list(grow(HistogramClustering(ArgMax()), n, 5, rng=np.random.RandomState(0)))
    assert max(len(state.params.weights) for state in states) == 2


def test_rows_without_sites_do_not_count():
    n, truth = planted()
    empty = np.concatenate([n, np.zeros((30, n.shape[1]))])
    weights = np.repeat([1.0, 0.0], [len(n), 30])
    full = list(grow(HistogramClustering(ArgMax()), n, 3, rng=np.random.RandomState(0)))
    masked = list(grow(HistogramClustering(ArgMax(weights)), empty, 3, rng=np.random.RandomState(0)))
    assert masked[2].free_energy == pytest.approx(full[2].free_energy)
    assert same_partition(masked[2].Q[: len(n)].argmax(axis=1), truth)
    np.testing.assert_allclose(masked[2].params.weights.sum(), 1)


@pytest.mark.parametrize("growth", ["split", "split-merge"])
def test_soft_growth_passes_phase_transitions(growth):
    n, truth = planted(K=3)
    model = HistogramClustering()
    critical = critical_beta(model, n, np.random.RandomState(0))
    schedule = geometric_schedule(0.5 * critical, 1.0, 0.8)
    states = list(anneal(model, n, schedule, n_clusters=3, growth=growth, rng=np.random.RandomState(0)))
    end = states[-1]
    assert same_partition(end.posteriors.argmax(axis=1), truth)
    assert all(event.beta >= critical for event in end.transitions)
    assert len(states[0].params.weights) == 1
    at_fixed = [[s.free_energy for s in states if s.beta == beta] for beta in schedule]
    assert all((np.diff(F) <= 0).all() for F in at_fixed)


def test_transitions_make_a_tree():
    tree = Tree.from_transitions([Transition(0.1, 0, 1), Transition(0.2, 0, 2), Transition(0.3, 1, 3)], 4)
    assert tree.parents.tolist() == [-1, 0, 0, 1, 1, 2, 2]
    assert tree.leaves.tolist() == [3, 5, 4, 6]


# ---- levels


def test_a_level_evaluates_the_original_free_energy():
    """[1] 5.4: tied rows at c times the temperature have the free energy of their sites."""
    image, _ = scene()
    parent = (np.arange(720) // 30 // 2) * 15 + np.arange(720) % 30 // 2
    coarse = aggregate(image, parent)
    model, rng = HistogramClustering(), np.random.RandomState(0)
    params = model.initial(image, 3, rng, spread=0.5)
    cells, mean = of_cells(model, *coarse)
    tied = cells.step(mean, params, 0.3)
    Q = (tied.posteriors / coarse.sizes[:, None])[parent]
    scores = np.asarray(image @ np.log(params.profiles).T)
    direct = -0.3 * (Q * scores).sum() + (Q * np.log(Q / params.weights)).sum()
    assert tied.free_energy == pytest.approx(direct, rel=1e-5)


def test_levels_run_from_coarse_to_fine_and_agree_with_the_finest():
    image, truth = scene()
    parent = (np.arange(720) // 30 // 2) * 15 + np.arange(720) % 30 // 2
    coarse = aggregate(image, parent)
    levels = [coarse, (image, None)]
    model = HistogramClustering()
    first = critical_beta(*of_cells(model, *coarse), np.random.RandomState(0))
    schedule = geometric_schedule(first, 20 * first, 0.7)
    states = list(coarse_to_fine(model, levels, schedule, n_clusters=2, rng=np.random.RandomState(0)))
    assert [key for key, _ in itertools.groupby(level for level, _ in states)] == [0, 1]
    assert len({state.beta for level, state in states if level == 1}) == 1
    _, end = states[-1]
    rng = np.random.RandomState(0)
    single = last_of(anneal(model, image, [end.beta], start=end.params, rng=rng, perturbation=0, tol=1e-9))
    assert end.free_energy == pytest.approx(single.free_energy, rel=1e-3)
    agreement = (end.posteriors.argmax(axis=1) == truth.ravel()).mean()
    assert max(agreement, 1 - agreement) > 0.95


def test_a_run_may_go_on_under_a_prior_on_the_map():
    image, _ = scene()
    rng = np.random.RandomState(0)
    end = last_of(anneal(HistogramClustering(), image, n_clusters=2, rng=rng))
    model = HistogramClustering(PottsField((24, 30)))
    last = [state.free_energy for state in anneal(model, image, [end.beta], start=end.params, rng=rng)]
    assert len(last) > 1
    assert (np.diff(last) <= 0).all()


# ---- validation


def test_patience_ends_a_temperature():
    n, _ = planted()
    values = iter([1.0, 2.0, 1.5, 1.4, 1.3] + [0.0] * 100)
    model = AspectModel()
    run = anneal(
        model,
        n,
        [1.0],
        start=model.initial(n, 3, np.random.RandomState(0)),
        rng=np.random.RandomState(0),
        validation=lambda params, posteriors: next(values),
        patience=3,
        tol=0,
    )
    assert [state.heldout for state in run] == [1.0, 2.0, 1.5, 1.4, 1.3]


def test_without_validation_there_is_no_heldout_value():
    n, _ = planted()
    state = next(anneal(HistogramClustering(), n, [0.1], rng=np.random.RandomState(0)))
    assert np.isnan(state.heldout)


def test_the_input_is_left_alone():
    n, _ = planted()
    n.setflags(write=False)
    last_of(anneal(HistogramClustering(), n, n_clusters=2, rng=np.random.RandomState(0)))
    list(grow(HistogramClustering(ArgMax()), n, 2, rng=np.random.RandomState(0)))
