"""Figures of the channels: the filters, their responses, and the histograms of the segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.fft
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from texseg.channels.gabor import GaborBank
from texseg.plot.axes import bare, named, one_axes, panels
from texseg.regions import palette

__all__ = ["channel_histograms", "filter_bank", "filter_frequencies", "responses"]

_GRID = 128  # samples of the frequency plane on each axis, and of the spatial kernels
_TOP = 99.5  # percentile shown as white


def filter_bank(bank: GaborBank, *, axes: Any = None) -> NDArray[Any]:
    """Show the filters in space: real parts of the kernels, a row for each wavelength, at the same scale."""
    axes = panels(axes, len(bank.filters), bank.n_orientations, 1.5, 1.6)
    reach = min(_GRID // 2 - 1, int(np.ceil(1.5 * max(bank.wavelengths))))
    centre = slice(_GRID // 2 - reach, _GRID // 2 + reach + 1)
    for ax, filter in zip(axes.flat, bank.filters, strict=True):
        kernel = scipy.fft.fftshift(scipy.fft.ifft2(bank.transfer(filter, (_GRID, _GRID))).real)
        kernel = kernel[centre, centre]
        top = np.abs(kernel).max()
        box = (-reach, reach, reach, -reach)
        name = f"{filter.wavelength:.3g} px, {filter.orientation:g}°"
        bare(ax, name, 9).imshow(kernel, cmap="gray", vmin=-top, vmax=top, extent=box)
    return axes


def filter_frequencies(bank: GaborBank, *, ax: Axes | None = None) -> Axes:
    """Show the contour at half of each filter's peak in the frequency plane, in cycles per pixel."""
    ax = one_axes(ax, 4.6, 4.4)
    frequencies = scipy.fft.fftshift(scipy.fft.fftfreq(_GRID * 2))
    colours = palette(len(bank.wavelengths)) / 255
    for filter in bank.filters:
        transfer = scipy.fft.fftshift(bank.transfer(filter, (_GRID * 2, _GRID * 2)))
        index = bank.wavelengths.index(filter.wavelength)
        ax.contour(
            frequencies, frequencies, transfer, levels=[transfer.max() / 2], colors=[colours[index + 1]]
        )
        if filter.orientation == 0:
            ax.plot([], [], color=colours[index + 1], label=f"{filter.wavelength:.3g} px")
    ax.axhline(0, color="0.8", linewidth=0.6, zorder=0)
    ax.axvline(0, color="0.8", linewidth=0.6, zorder=0)
    ax.set(aspect="equal", xlabel="cycles per pixel, x", ylabel="cycles per pixel, y")
    ax.set(xlim=(-0.5, 0.5), ylim=(0.5, -0.5), title="half peak of each filter")
    ax.legend(title="wavelength", fontsize=8)
    return ax


def responses(
    responses: ArrayLike, *, names: Sequence[str] = (), n_columns: int = 4, axes: Any = None
) -> NDArray[Any]:
    """Responses of the filters, each from black (zero) to white (its 99.5th percentile).

    ``responses`` (C, H, W) are for example those of :meth:`texseg.channels.gabor.GaborBank.transform`;
    ``names`` are C strings.
    """
    planes = np.asarray(responses)
    if planes.ndim != 3:
        raise ValueError(f"responses must have shape (C, H, W), got {planes.shape}")
    axes = panels(axes, len(planes), n_columns, 1.9, 2.1)
    for index, (ax, plane) in enumerate(zip(axes.flat, planes, strict=False)):
        title = named(names, index, "channel")
        bare(ax, title, 9).imshow(plane, cmap="gray", vmin=0, vmax=np.percentile(plane, _TOP))
    return axes


def channel_histograms(
    profiles: ArrayLike,
    segment: int,
    *,
    shares: ArrayLike | None = None,
    names: Sequence[str] = (),
    n_columns: int = 4,
    axes: Any = None,
) -> NDArray[Any]:
    """Histograms of one segment in every channel, against those of the rest of the image.

    The titles give how much the two differ: total variation, 0 (equal) to 1 (disjoint).

    Parameters
    ----------
    profiles : float array of shape (K, C, n_bins)
        ``model.profiles_``.
    segment : int
        Label, 1 ... K.
    shares : float array of shape (K,), optional
        Areas of the segments, the weights in the average over the others; equal by default.
    names : sequence of C strings, optional
        ``model.channel_names_``.
    n_columns : int, default=4
    """
    table = np.asarray(profiles, dtype=float)
    if table.ndim != 3:
        raise ValueError(f"profiles must have shape (K, C, n_bins), got {table.shape}")
    K, C, n_bins = table.shape
    if not 1 <= segment <= K:
        raise ValueError(f"segment must be a label from 1 to {K}, got {segment!r}")
    weights = np.ones(K) if shares is None else np.asarray(shares, dtype=float).copy()
    if weights.shape != (K,):
        raise ValueError(f"shares must hold one area for each of {K} segments, got shape {weights.shape}")
    weights[segment - 1] = 0
    own = table[segment - 1]
    rest = np.tensordot(weights / weights.sum(), table, axes=1) if weights.sum() > 0 else np.zeros_like(own)
    colour = palette(segment)[segment] / 255
    edges = np.arange(n_bins + 1)
    axes = panels(axes, C, n_columns, 2.1, 1.5, sharex=True)
    for index, ax in enumerate(axes.flat[:C]):
        ax.stairs(own[index], edges, fill=True, color=colour, alpha=0.75, label=f"segment {segment}")
        ax.stairs(rest[index], edges, color="0.25", linewidth=1, label="the rest")
        difference = np.abs(own[index] - rest[index]).sum() / 2
        ax.set_title(f"{named(names, index, 'channel')}: {difference:.2f}", fontsize=8)
        ax.set_yticks([])
        ax.tick_params(labelsize=7)
    axes.flat[0].legend(fontsize=7, frameon=False)
    return axes
