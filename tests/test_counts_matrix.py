"""Count matrices: implicit windowed counts against explicit histograms, the dot test, the seam's doors."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.pyramid import aggregate, block_sums
from texseg.counts.matrix import (
    WindowedCounts,
    check_counts,
    column_totals,
    groups_of,
    is_implicit,
    row_blocks,
    row_totals,
    split_counts,
)


def mirrored(index, length):
    """Index of the half-sample symmetric continuation: ... 1 0 | 0 1 2 ... n-1 | n-1 n-2 ..."""
    index %= 2 * length
    return index if index < length else 2 * length - 1 - index


def naive_counts(bins, windows, n_bins, mask, weights, normalize, border):
    """Histograms round every pixel by plain loops, shape (H * W, C * n_bins)."""
    C, H, W = bins.shape
    table = np.zeros((H * W, C * n_bins))
    for y in range(H):
        for x in range(W):
            if not mask[y, x]:
                continue
            for c in range(C):
                half, histogram = windows[c] // 2, np.zeros(n_bins)
                for dy in range(-half, half + 1):
                    for dx in range(-half, half + 1):
                        yy, xx = y + dy, x + dx
                        if border == "symmetric":
                            yy, xx = mirrored(yy, H), mirrored(xx, W)
                        if 0 <= yy < H and 0 <= xx < W and mask[yy, xx]:
                            histogram[bins[c, yy, xx]] += 1
                if normalize:
                    histogram /= histogram.sum()
                table[y * W + x, c * n_bins : (c + 1) * n_bins] = weights[c] * histogram
    return table


@st.composite
def scenes(draw, largest=9):
    """Draw the arguments of WindowedCounts for a small image, one-row images and wide windows included."""
    C, H, W = (draw(st.integers(1, most)) for most in (3, largest, largest))
    n_bins = draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    masked = draw(st.booleans())
    return {
        "bins": rng.integers(0, n_bins, (C, H, W), dtype=np.uint8),
        "window": [2 * draw(st.integers(0, 5)) + 1 for _ in range(C)],
        "n_bins": n_bins,
        "mask": rng.random((H, W)) < 0.7 if masked else None,
        "weights": rng.uniform(0, 3, C).round(2),
        "normalize": draw(st.booleans()),
        "border": draw(st.sampled_from(["zero", "symmetric"])),
    }


def naive_of(scene):
    mask = np.ones(scene["bins"].shape[1:], bool) if scene["mask"] is None else scene["mask"]
    return naive_counts(
        scene["bins"],
        scene["window"],
        scene["n_bins"],
        mask,
        scene["weights"],
        scene["normalize"],
        scene["border"],
    )


def example(**changes):
    rng = np.random.default_rng(5)
    scene = {
        "bins": rng.integers(0, 6, (3, 12, 17), dtype=np.uint8),
        "window": [1, 5, 5],
        "n_bins": 6,
        "mask": rng.random((12, 17)) < 0.8,
        "weights": [1.0, 2.0, 0.5],
        "normalize": True,
        "border": "zero",
    }
    return scene | changes


# ---- windowed counts ---------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(scenes())
def test_every_entry_is_that_of_the_histogram_by_hand(scene):
    n, expected = WindowedCounts(**scene), naive_of(scene)
    assert n.shape == expected.shape
    np.testing.assert_allclose(n @ np.eye(n.shape[1]), expected, atol=1e-5)
    np.testing.assert_allclose((n.T @ np.eye(n.shape[0])).T, expected, atol=1e-5)
    np.testing.assert_allclose(n[:].toarray(), expected, atol=1e-5)
    np.testing.assert_allclose(row_totals(n), expected.sum(axis=1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(column_totals(n), expected.sum(axis=0), rtol=1e-5, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(scenes(largest=40), st.integers(1, 3), st.sampled_from([np.float32, np.float64, np.int64]))
def test_the_product_and_its_transpose_are_adjoint(scene, columns, dtype):
    n, rng = WindowedCounts(**scene), np.random.default_rng(1)
    A = (10 * rng.standard_normal((n.shape[1], columns))).astype(dtype)
    B = (10 * rng.standard_normal((n.shape[0], columns))).astype(dtype)
    left, right = np.vdot(n @ A, B), np.vdot(A, n.T @ B)
    scale = np.linalg.norm(n @ np.abs(A)) * np.linalg.norm(B.astype(float))
    assert abs(left - right) <= 2e-6 * scale + 1e-9


@settings(max_examples=30, deadline=None)
@given(scenes(), st.data())
def test_slices_are_rows_of_the_whole(scene, data):
    n, expected = WindowedCounts(**scene), naive_of(scene)
    N = n.shape[0]
    rows = slice(*(data.draw(st.none() | st.integers(-N - 2, N + 2)) for _ in range(2)))
    rows = slice(rows.start, rows.stop, data.draw(st.sampled_from([None, 1, 2, 3])))
    strip = n[rows]
    assert sp.issparse(strip)
    assert strip.shape == expected[rows].shape
    np.testing.assert_allclose(strip.toarray(), expected[rows], atol=1e-5)


def test_rows_are_taken_by_forward_slices_only():
    n = WindowedCounts(**example())
    for rows in (3, [1, 2], slice(None, None, -1)):
        with pytest.raises(TypeError, match=r"rows must be selected by a slice with a positive step, got"):
            n[rows]


@settings(max_examples=30, deadline=None)
@given(scenes(), st.integers(1, 10))
def test_row_blocks_cover_all_rows_once(scene, rows):
    n = WindowedCounts(**scene)
    blocks = list(row_blocks(n, rows))
    assert [block.shape[0] for _, block in blocks] == [s.stop - s.start for s, _ in blocks]
    np.testing.assert_allclose(
        np.concatenate([block.toarray() for _, block in blocks]), naive_of(scene), atol=1e-5
    )


@settings(max_examples=30, deadline=None)
@given(scenes(), st.integers(1, 12))
def test_block_sums_are_sums_of_rows(scene, side):
    n, (C, H, W) = WindowedCounts(**scene), scene["bins"].shape
    table = naive_of(scene).reshape(H, W, -1)
    sums = block_sums(n, side)
    assert sums.shape == (-(-H // side), -(-W // side), C * scene["n_bins"])
    for i, j in np.ndindex(sums.shape[:2]):
        block = table[i * side : (i + 1) * side, j * side : (j + 1) * side]
        np.testing.assert_allclose(sums[i, j], block.sum(axis=(0, 1)), rtol=1e-5, atol=1e-5)


def test_normalised_channels_sum_to_their_weight_where_there_is_data():
    scene = example()
    n = WindowedCounts(**scene)
    sums = np.stack([n @ (n.groups == c).astype(float) for c in range(3)], axis=1)
    expected = scene["mask"].ravel()[:, None] * np.array(scene["weights"])
    np.testing.assert_allclose(sums, expected, atol=1e-5)


def test_masked_pixels_count_nowhere():
    scene = example()
    changed = scene["bins"].copy()
    changed[:, ~scene["mask"]] = 5 - changed[:, ~scene["mask"]]
    A = np.random.default_rng(0).standard_normal((18, 2))
    products = [WindowedCounts(**example(bins=bins)) @ A for bins in (scene["bins"], changed)]
    np.testing.assert_array_equal(*products)


def test_a_mask_that_is_true_everywhere_is_no_mask():
    A = np.random.default_rng(0).standard_normal((18, 2))
    one, other = (WindowedCounts(**example(mask=mask)) @ A for mask in (None, np.ones((12, 17), bool)))
    np.testing.assert_array_equal(one, other)


def test_one_dimensional_operands_give_one_dimensional_products():
    n = WindowedCounts(**example())
    assert (n @ np.ones(18)).shape == (204,)
    assert (n.T @ np.ones(204)).shape == (18,)
    assert (n @ np.ones((18, 1))).shape == (204, 1)
    assert (n @ np.ones((18, 0))).shape == (204, 0)
    assert n.T.shape == (18, 204)
    assert n.T.T is n


def test_operands_and_arguments_are_left_alone():
    scene = example()
    copies = {key: np.copy(value) for key, value in scene.items()}
    n = WindowedCounts(**scene)
    A, B = np.ones((18, 2)), np.ones((204, 2), np.float32)
    n @ A, n.T @ B, block_sums(n, 4), n[3:50]
    assert (A == 1).all() and (B == 1).all()
    for key, value in copies.items():
        np.testing.assert_array_equal(scene[key], value)


def test_groups_name_the_channel_of_every_column():
    n = WindowedCounts(**example())
    assert groups_of(n).tolist() == [0] * 6 + [1] * 6 + [2] * 6
    assert groups_of(np.ones((2, 4))).tolist() == [0] * 4


def test_products_with_the_wrong_number_of_rows_are_refused():
    n = WindowedCounts(**example())
    with pytest.raises(ValueError, match=r"n @ A needs A with 18 rows, got shape \(204, 2\)"):
        n @ np.ones((204, 2))
    with pytest.raises(ValueError, match=r"n.T @ B needs B with 204 rows, got shape \(18,\)"):
        n.T @ np.ones(18)


# ---- coarser rows ------------------------------------------------------------------------------------------


def cells(H, W, side):
    rows, columns = np.arange(H) // side, np.arange(W) // side
    return (rows[:, None] * (columns[-1] + 1) + columns).ravel()


@pytest.mark.parametrize("kind", ["dense", "csr", "coo", "implicit"])
def test_aggregated_counts_are_sums_of_rows(kind):
    implicit = WindowedCounts(**example())
    dense = implicit[:].toarray()
    n = {"dense": dense, "csr": sp.csr_array(dense), "coo": sp.coo_array(dense), "implicit": implicit}[kind]
    parent = cells(12, 17, 5)
    parent[:20] = -1
    coarse, sizes = aggregate(n, parent, 15)
    expected = np.zeros((15, 18))
    np.add.at(expected, parent[20:], dense[20:])
    assert coarse.shape == (15, 18)
    assert sizes.tolist() == np.bincount(parent[20:], minlength=15).tolist()
    assert is_implicit(coarse) == (kind == "implicit")
    np.testing.assert_allclose(coarse @ np.eye(18), expected, atol=1e-4)
    np.testing.assert_allclose((coarse.T @ np.eye(15)).T, expected, atol=1e-4)
    expected_groups = groups_of(implicit) if kind == "implicit" else np.zeros(18)
    assert groups_of(coarse).tolist() == expected_groups.tolist()


def test_aggregated_implicit_counts_give_their_entries_block_by_block():
    n = WindowedCounts(**example())
    parent = np.random.default_rng(2).integers(-1, 30, 204)
    coarse = aggregate(n, parent, 31).counts
    expected = np.zeros((31, 18))
    np.add.at(expected, parent[parent >= 0], n[:].toarray()[parent >= 0])
    blocks = [block.toarray() for _, block in row_blocks(coarse, rows=4)]
    np.testing.assert_allclose(np.concatenate(blocks), expected, atol=1e-4)
    np.testing.assert_allclose(coarse[3:20:2].toarray(), expected[3:20:2], atol=1e-4)


@settings(max_examples=30, deadline=None)
@given(scenes(), st.integers(1, 4), st.integers(1, 3))
def test_aggregated_counts_pass_the_dot_test_and_can_be_aggregated_again(scene, side, K):
    n, rng = WindowedCounts(**scene), np.random.default_rng(0)
    parent = cells(*scene["bins"].shape[1:], side)
    coarse = aggregate(n, parent).counts
    A, B = rng.standard_normal((n.shape[1], K)), rng.standard_normal((coarse.shape[0], K))
    scale = np.linalg.norm(coarse @ np.abs(A)) * np.linalg.norm(B)
    assert abs(np.vdot(coarse @ A, B) - np.vdot(A, coarse.T @ B)) <= 2e-6 * scale + 1e-9
    everything = aggregate(coarse, np.zeros(coarse.shape[0], int)).counts
    np.testing.assert_allclose((everything @ np.eye(n.shape[1]))[0], column_totals(n), rtol=1e-4, atol=1e-4)


@settings(max_examples=20, deadline=None)
@given(scenes(), st.integers(1, 4))
def test_the_likelihood_of_block_constant_assignments_is_that_of_the_pixels(scene, side):
    n, rng = WindowedCounts(**scene), np.random.default_rng(0)
    parent = cells(*scene["bins"].shape[1:], side)
    coarse = aggregate(n, parent).counts
    Q = rng.dirichlet(np.ones(3), coarse.shape[0])
    log_profiles = np.log(rng.dirichlet(np.ones(n.shape[1]), 3)).T
    fine = (Q[parent] * (n @ log_profiles)).sum()
    assert (Q * (coarse @ log_profiles)).sum() == pytest.approx(fine, rel=1e-4, abs=1e-4)


# ---- explicit matrices -------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix])
@pytest.mark.parametrize("rows", [None, 1, 4, 100])
def test_row_blocks_of_explicit_matrices(make, rows):
    table = np.random.default_rng(0).poisson(1.0, (9, 5))
    blocks = list(row_blocks(make(table), rows))
    assert all(block.format == "csr" for _, block in blocks)
    np.testing.assert_array_equal(np.concatenate([block.toarray() for _, block in blocks]), table)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix])
def test_totals_of_explicit_matrices(make):
    table = np.random.default_rng(0).poisson(1.0, (9, 5))
    assert row_totals(make(table)).tolist() == table.sum(axis=1).tolist()
    assert column_totals(make(table)).tolist() == table.sum(axis=0).tolist()


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ([1, 2], ValueError, r"needs X as a table with at least one row and one column, got shape \(2,\)"),
        (np.ones((0, 3)), ValueError, r"at least one row and one column, got shape \(0, 3\)"),
        (sp.csr_array((3, 0)), ValueError, r"at least one row and one column, got shape \(3, 0\)"),
        (np.ones((2, 2), complex), TypeError, "ACM needs X with real numbers, got dtype complex128"),
        (np.array([["a", "b"]]), TypeError, "ACM needs X with real numbers, got dtype <U1"),
        (np.array([[1, None]]), TypeError, "ACM needs X with real numbers, got dtype object"),
        (sp.csr_array(np.ones((2, 2), complex)), TypeError, "got dtype complex128"),
        ([[1.0, np.nan]], ValueError, "ACM got NaN or infinity in X; counts must be finite"),
        (sp.csr_array([[1.0, np.inf]]), ValueError, "ACM got NaN or infinity in X"),
        ([[1, -2]], ValueError, "Negative values in data passed to ACM: counts in X must be at least 0"),
        (sp.coo_array([[1, -2]]), ValueError, "Negative values in data passed to ACM"),
        (np.zeros((2, 2)), ValueError, "ACM got only zeros in X; there is no occurrence to explain"),
        (sp.csr_array((2, 2)), ValueError, "ACM got only zeros in X"),
    ],
)
def test_check_counts_says_why_something_is_no_count_matrix(X, error, message):
    with pytest.raises(error, match=message):
        check_counts(X, owner="ACM")


def test_check_counts_names_the_argument():
    with pytest.raises(ValueError, match="split_counts got NaN or infinity in n"):
        check_counts([[np.nan]], owner="split_counts", name="n")


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, sp.coo_array])
def test_check_counts_accepts_real_tables_and_keeps_single_precision(dtype, make):
    X = make(np.array([[0, 1], [1, 1], [0, 0]], dtype))
    checked = check_counts(X)
    assert checked.dtype == (np.float32 if dtype == np.float32 else np.float64)
    assert (not sp.issparse(X)) or checked.format == "csr"
    np.testing.assert_array_equal(checked @ np.ones(2), [1, 2, 0])
    assert X.dtype == dtype


def test_check_counts_accepts_lists_half_precision_and_operators():
    assert check_counts([[1, 2]]).tolist() == [[1, 2]]
    assert check_counts(np.ones((1, 2), np.float16)).dtype == np.float64
    n = WindowedCounts(**example())
    assert check_counts(n) is n


# ---- dealing occurrences out -------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**16), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_parts_of_a_split_sum_to_the_whole(seed, shares):
    table = np.random.default_rng(seed).poisson(2.0, (6, 5)) + np.eye(6, 5, dtype=int)
    fractions = np.array(shares) / sum(shares)
    parts = split_counts(sp.csr_array(table), fractions, random_state=seed)
    assert (sum(part.toarray() for part in parts) == table).all()
    for part, fraction in zip(parts, fractions, strict=True):
        assert part.data.min(initial=1) > 0  # nothing is stored where there is nothing
        assert abs(part.sum() - fraction * table.sum()) <= 1


def test_occurrences_are_dealt_out_evenly_not_cell_by_cell():
    train, test = split_counts(np.full((40, 50), 10), [0.8, 0.2], random_state=0)
    counts = train.toarray().ravel()
    # of 10 occurrences each, hypergeometric: mean 8, variance 1.6
    assert counts.mean() == pytest.approx(8)
    assert counts.var() == pytest.approx(1.6, rel=0.1)
    assert (test.toarray().ravel() + counts == 10).all()


def test_a_seed_fixes_the_split():
    table = np.random.default_rng(0).poisson(2.0, (6, 5))
    a, b, c = (split_counts(table, [0.5, 0.5], random_state=seed)[0].toarray() for seed in (1, 1, 2))
    assert (a == b).all()
    assert (a != c).any()


@pytest.mark.parametrize("fractions", [[], [0.5, 0.6], [1.2, -0.2], [[0.5, 0.5]]])
def test_fractions_must_be_positive_and_sum_to_one(fractions):
    with pytest.raises(ValueError, match="fractions must be positive numbers with sum 1, got"):
        split_counts(np.ones((2, 2)), fractions)


def test_occurrences_in_overlapping_windows_cannot_be_dealt_out():
    with pytest.raises(TypeError, match="overlapping windows of an image do not have"):
        split_counts(WindowedCounts(np.zeros((1, 4, 4), np.uint8)), [0.5, 0.5])
