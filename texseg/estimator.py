"""The segmenter as an estimator of scikit-learn."""

from __future__ import annotations

from sklearn.base import BaseEstimator, ClusterMixin

from texseg.segmenter import Segmenter

__all__ = ["TextureSegmenter"]


class TextureSegmenter(Segmenter, ClusterMixin, BaseEstimator):
    """Divide images by their textures.

    Gabor responses become local histograms, the asymmetric clustering model is fitted to them ([1]_), and its
    clusters go back to pixels.

    Parameters
    ----------
    n_segments : int, optional
        Number of textures, K; None chooses it between ``k_min`` and ``k_max``, see
        :mod:`texseg.method.number`.
    model : {"acm", "acm-hard", "smm", "pmm", "scm", "hacm"}, default="acm"
        The member of the family that finds the clusters. ``acm`` is the default path with all it has; the
        others cluster the histograms of windows as they are, for comparison; from clusters to pixels the path
        is the same.
    preset : {"default", "plain"}, default="default"
        ``default`` is the method of [1]_ with four additions, each of which one parameter leaves out:
        ``patch_weight``, ``value_weight``, ``smoothness`` and ``learned_borders``. ``plain`` is the same path
        without them.
    channel_axis : int, optional
        Axis of the bands of the images; None for grey images. Three bands are taken for red, green, blue.
    nodata : float, optional
        Pixels with this value (in all bands) hold no data. NaN and infinite pixels never do.
    log : bool, optional
        Take the logarithm of the values, where light multiplies: gains, vignetting, amplitudes with speckle,
        transmitted light. What is in decibels is a logarithm already. By default it is taken, and that is
        said, where contrast follows brightness by the same factor all over the image; not in the plain
        preset.
    crop_bar : bool, default=False
        Leave out the info bar of a microscope (label 0) where one is found; otherwise a note tells of it.
    flat_ground : bool, default=True
        Make ground of one value round the textures, from a fifth of the image on, a segment of its own, see
        :mod:`texseg.channels.ground`; not on the plain path.
    smoothness : float, optional
        Strength of the prior that neighbours belong together, on cells and pixels: 1, the default, adds up
        to 10 nats to what a unanimous neighbourhood says; 0 leaves the prior out, and windows round every
        pixel take its place.
    min_size : int, default=0
        Connected parts with fewer pixels are merged into the neighbour that explains them best.
    k_min : int, default=2
        Smallest number that is considered when the number is chosen. With 1 an image may be a single
        texture, which sorts plain from patterned images. An image without any structure always has one
        segment.
    k_max : int, default=14
        Largest number that is considered when the number is chosen, and in ``hierarchy_``.
    random_state : int, RandomState or None, default=0
    verbose : bool, default=False
        Show a progress bar with the phase and the time left while fitting, on a terminal or in a notebook.
    callback : function of one :class:`texseg.progress.Progress`, optional
        Told about every phase; an exception it raises ends the fit.
    wavelengths : sequence of floats, optional
        Of the filters, in pixels; 2.83, 5.66 and 11.3 by default.
    n_orientations : int, optional
        Filters of each wavelength; 4 by default.
    n_bins : int, optional
        Bins of each channel; 40 by default.
    patch_weight : float, optional
        Weight of the texton channel (patches of 5 x 5 pixels, vector-quantised), where a filter has 1; 4 by
        default, 0 leaves it out.
    value_weight : float, optional
        Factor on the weights of the plain values, 1 by default; 0 leaves them out.
    learned_borders : bool, optional
        Learn what borders look like, on composites of the image's own segments; True by default.
    cue : {"auto", "texture", "values"}, optional
        What segments differ in: texture, as in the plain preset; plain values (brightness, colour) at the
        scale of pixels, for grains, pores and cells that are smaller than any texture; by default what the
        image shows more of, see :mod:`texseg.method.cues`.
    cell : int, optional
        Side in pixels of the cells that clusters are fitted on; 8 by default, less for images below 512.
    n_starts : int, optional
        Annealed runs, of which the best is kept; 2 by default. The first sees the calmest windows, the second
        all of them, and each further one a random half.
    n_jobs : int, optional
        Threads that a call uses, on which the labels do not depend; None and -1 stand for all processors.

    Attributes
    ----------
    labels_ : int32 array of shape (H, W), or a list of them when a list was fitted
        1 .. ``n_segments_``, ordered by texture energy (mean bin over the filters), faintest first, whatever
        the seed (flat ground, if there is any, is 1); 0 only where there is no data. With strokes, class c
        has label c.
    n_segments_ : int
        Segments found; fewer than ``n_segments`` where the image does not hold as many, with a warning.
    names_ : tuple of ``n_segments_`` strings
        Names that were given to the segments (:meth:`rename`), empty where there is none.
    profiles_ : float array of shape (n_segments_, C, n_bins)
        Histograms of every segment, each channel with sum one ([1]_ Eq. 24).
    ground_ : float array of shape (C, n_bins), or None
        Profile of flat ground, if there is any.
    channel_names_ : tuple of C strings
    confidence_ : float32 array of shape (H, W), or list
        Calibrated probability of every pixel's label; 0 where there is no data.
    selection_ : texseg.method.number.Selection
        When the number was chosen: the probability of every number from ``k_min`` to as many as there are
        clusters to merge, at most ``k_max``, and that of a single texture; print it to read it in words. Flat
        ground counts as one of them.
    hierarchy_ : texseg.method.hierarchy.Hierarchy
        Segmentations into 1 to about ``k_max`` segments, nested in each other and in ``labels_``, which is
        one of them; made when it is first asked for.
    cue_ : {"texture", "values"}
        What the segments differ in.
    history_ : list of :class:`texseg.method.clusters.Record`
        Temperatures, free energies and phase transitions of all runs.

    References
    ----------
    .. [1] T. Hofmann and J. Puzicha, Statistical Models for Co-occurrence Data, A.I. Memo 1625, MIT, 1998.

    Examples
    --------
    >>> import numpy as np
    >>> rows, columns = np.mgrid[:64, :96]
    >>> image = np.where(columns < 48, np.sin(rows), np.sin(columns / 2))
    >>> model = TextureSegmenter(n_segments=2).fit(image)
    >>> model.labels_.shape, sorted(set(model.labels_[:, [5, 90]].ravel().tolist()))
    ((64, 96), [1, 2])
    """
