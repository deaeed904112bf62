"""The filter bank against convolution in space with kernels made from the formula, gratings, and laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal

from texseg.channels.gabor import GaborBank

SHAPE = (61, 74)  # neither square nor even: a transposition or a shift by a pixel shows


def picture(seed=0, shape=SHAPE):
    return np.random.default_rng(seed).standard_normal(shape)


def grating(frequency, degrees, shape=(96, 96), phase=0.4):
    """Return a plane wave; the wave vector points from the column axis towards the row axis."""
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    along = columns * np.cos(np.radians(degrees)) + rows * np.sin(np.radians(degrees))
    return np.cos(2 * np.pi * frequency * along + phase)


def middle(responses, margin=30):
    return responses[..., margin:-margin, margin:-margin]


def morlet_kernel(wavelength, degrees, bandwidth, angular_bandwidth, reach=50):
    """Complex Gabor kernel sampled in space, its mean taken away with its own envelope.

    Widths follow from the half-peak points: frequencies a factor 2**bandwidth apart round the centre, and
    directions ``angular_bandwidth`` apart.
    """
    half = np.sqrt(2 * np.log(2))
    sigma_along = (2**bandwidth + 1) / (2**bandwidth - 1) * half * wavelength / (2 * np.pi)
    sigma_across = half * wavelength / (2 * np.pi * np.tan(np.radians(angular_bandwidth / 2)))
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    angle = np.radians(degrees)
    p, t = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    envelope = np.exp(-0.5 * ((p / sigma_along) ** 2 + (t / sigma_across) ** 2))
    wave = np.exp(2j * np.pi * p / wavelength)
    kernel = envelope * (wave - (envelope * wave).sum() / envelope.sum())
    return 2 * kernel / (kernel * wave.conj()).sum().real


@pytest.mark.parametrize(
    ("wavelengths", "n_orientations", "bandwidth", "angular_bandwidth"),
    [
        ((2 * 2**0.5, 4 * 2**0.5, 8 * 2**0.5), 4, 1.0, 45.0),
        ((3.0, 7.0), 6, 1.5, 30.0),
        ((2.2, 5.0), 3, 2.0, 70.0),
    ],
)
def test_responses_are_those_of_direct_convolution_in_space(
    wavelengths, n_orientations, bandwidth, angular_bandwidth
):
    image, reach = picture(), 50
    padded = np.pad(image, reach, mode="symmetric")
    bank = GaborBank(wavelengths, n_orientations, bandwidth, angular_bandwidth)
    responses = bank.transform(image)
    assert responses.dtype == np.float32
    assert responses.shape == (len(wavelengths) * n_orientations, *SHAPE)
    for filter, response in zip(bank.filters, responses, strict=True):
        kernel = morlet_kernel(filter.wavelength, filter.orientation, bandwidth, angular_bandwidth, reach)
        expected = np.abs(signal.fftconvolve(padded, kernel, mode="valid"))
        assert np.abs(response - expected).max() < 2e-3 * expected.max(), filter


def test_order_is_all_orientations_of_the_shortest_wavelength_first():
    bank = GaborBank([3.0, 6.0], 2)
    assert [(f.wavelength, f.orientation) for f in bank.filters] == [(3, 0), (3, 90), (6, 0), (6, 90)]


@pytest.mark.parametrize("index", range(12))
def test_a_grating_of_a_filters_own_frequency_answers_its_amplitude_there_and_less_elsewhere(index):
    bank = GaborBank()
    own = bank.filters[index]
    responses = middle(bank.transform(3 * grating(1 / own.wavelength, own.orientation)))
    # close to Nyquist a sampled grating and its mirror frequency are neighbours: 1.4 per cent of a beat
    np.testing.assert_allclose(responses[index], 3, rtol=0.02 if own.wavelength < 4 else 2e-3)
    means = responses.mean(axis=(1, 2))
    assert means.argmax() == index
    assert np.delete(means, index).max() < 0.6 * 3


@pytest.mark.parametrize("bandwidth", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("angular_bandwidth", [30.0, 45.0])
def test_half_peak_lies_a_bandwidth_apart_in_frequency_and_direction(bandwidth, angular_bandwidth):
    wavelength, shape = 8.0, (140, 140)
    bank = GaborBank([wavelength], 1, bandwidth, angular_bandwidth)

    def amplitude(frequency, degrees):
        return middle(bank.transform(grating(frequency, degrees, shape)), 50).mean()

    peak = amplitude(1 / wavelength, 0)
    low = 2 / (1 + 2**bandwidth) / wavelength
    # the constant that is taken away from a broad filter lowers its lower flank
    assert amplitude(2**bandwidth * low, 0) == pytest.approx(peak / 2, rel=0.03)
    assert amplitude(low, 0) == pytest.approx(peak / 2, rel=0.03 if bandwidth < 2 else 0.2)
    side = np.radians(angular_bandwidth / 2)
    for sign in (-1, 1):
        across = amplitude(1 / wavelength / np.cos(side), sign * angular_bandwidth / 2)
        assert across == pytest.approx(peak / 2, rel=0.03)


@pytest.mark.parametrize("bandwidth", [0.7, 1.0, 2.0])
def test_constants_are_invisible(bandwidth):
    bank = GaborBank(bandwidth=bandwidth)
    assert bank.transform(np.full(SHAPE, 100.0)).max() < 1e-3
    difference = bank.transform(picture() + 100) - bank.transform(picture())
    assert np.abs(difference).max() < 1e-3


def test_responses_are_linear_in_contrast_and_blind_to_its_sign():
    bank, image = GaborBank(), picture()
    once = bank.transform(image)
    np.testing.assert_allclose(bank.transform(-5 * image), 5 * once, rtol=1e-4, atol=1e-5)


@settings(max_examples=12, deadline=None)
@given(
    top=st.integers(0, 40),
    left=st.integers(0, 40),
    height=st.integers(50, 80),
    width=st.integers(50, 80),
)
def test_a_crop_answers_like_the_whole_beyond_the_halo(top, left, height, width):
    bank, image = GaborBank([2 * 2**0.5, 4 * 2**0.5]), picture(3, (130, 131))
    whole = bank.transform(image)[:, top : top + height, left : left + width]
    crop = bank.transform(image[top : top + height, left : left + width])
    difference = middle(whole - crop, bank.halo)
    assert np.abs(difference).max() < 2e-3 * whole.max()


def test_symmetries_of_the_image_are_symmetries_of_the_bank():
    bank, image = GaborBank([3.0, 8.0], 4), picture()
    plain = bank.transform(image)
    tolerance = {"atol": 1e-3 * plain.max(), "rtol": 0}  # what lies beyond the halo
    mirrored = [0, 3, 2, 1, 4, 7, 6, 5]  # orientations 0, 45, 90, 135 become 0, 135, 90, 45
    np.testing.assert_allclose(bank.transform(image[:, ::-1])[mirrored, :, ::-1], plain, **tolerance)
    np.testing.assert_allclose(bank.transform(image[::-1])[mirrored, ::-1], plain, **tolerance)
    transposed = [2, 1, 0, 3, 6, 5, 4, 7]
    np.testing.assert_allclose(bank.transform(image.T)[transposed].transpose(0, 2, 1), plain, **tolerance)


def test_a_border_is_mirrored_and_leaves_no_edge():
    image = picture()
    mirrored = np.pad(image, 40, mode="symmetric")
    bank = GaborBank()
    inside = bank.transform(mirrored)[:, 40:-40, 40:-40]
    assert np.abs(bank.transform(image) - inside).max() < 2e-3 * inside.max()


@pytest.mark.parametrize("shape", [(1, 1), (1, 30), (30, 1), (5, 9)])
def test_images_smaller_than_the_filters_have_finite_responses(shape):
    responses = GaborBank().transform(picture(shape=shape))
    assert responses.shape == (12, *shape)
    assert np.isfinite(responses).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.float32, np.float64, bool])
def test_dtypes_do_not_matter_and_the_image_is_left_alone(dtype):
    image = (picture() > 0).astype(dtype)
    before = image.copy()
    np.testing.assert_array_equal(GaborBank().transform(image), GaborBank().transform(image.astype(float)))
    np.testing.assert_array_equal(image, before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"wavelengths": []}, r"wavelengths must be above 2 pixels \(Nyquist\), got \[\]"),
        ({"wavelengths": [4, 2]}, r"wavelengths must be above 2 pixels \(Nyquist\), got \[4, 2\]"),
    ],
)
def test_a_bank_refuses_what_it_cannot_be(arguments, message):
    with pytest.raises(ValueError, match=message):
        GaborBank(**arguments)
