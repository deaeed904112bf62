"""The estimator on images, and the one call."""

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

import texseg
from texseg.channels.ground import profile_of_ground
from texseg.counts.random import random_state_of
from texseg.io.regions import PixelSize
from texseg.method.blocks import Request, crops_of, goes_by_blocks, is_lazy, label_array
from texseg.method.clusters import Record, Search
from texseg.method.division import Divider, Division, n_textures, repaint
from texseg.method.edits import Editable, Labels, Values
from texseg.method.hierarchy import Hierarchy, Levels, levels_beside_ground, levels_of
from texseg.method.labelling import confidence_of, label_scene, probabilities
from texseg.method.modelfile import read_textures, save_textures
from texseg.method.number import Selection
from texseg.method.sampling import SceneSample, learns_again, unexplained
from texseg.method.scenes import known_scenes, learn_scenes, refuse_seeds_without_cells, warn
from texseg.method.seeds import checked_seeds, classes_in
from texseg.method.textures import Scene
from texseg.parameters import PARAMETERS, Parameters, Settings, check_flags, checked, takes_parameters
from texseg.progress import Phases, ProgressBar, costs_of
from texseg.threads import computing, crew_of, one_blas_thread

__all__ = ["Record", "Segmenter", "segment"]

_MOSTLY_UNKNOWN = 0.9


class _OfChosenNumber:
    """Stands in for `selection_` where a model has none, and says so."""

    def __get__(self, model: Any, owner: type) -> Selection:
        raise AttributeError(
            "selection_ exists only after a fit that chooses the number, with n_segments=None and without "
            "strokes; it is not kept in files"
        )


class Segmenter(Editable):
    """What :class:`texseg.TextureSegmenter` does, without what scikit-learn adds to it.

    `segment` and the command use it as it is, and do not wait for scikit-learn to be imported. Parameters and
    attributes stand in :class:`texseg.TextureSegmenter`.
    """

    ground_: NDArray[np.floating] | None = None
    pixel_size_: PixelSize | None = None
    colours_: Mapping[str, str] = {}
    selection_ = _OfChosenNumber()

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    @takes_parameters
    def __init__(self, n_segments: int | None = None, **parameters: Unpack[Parameters]) -> None:
        given: dict[str, Any] = {"n_segments": n_segments, **parameters}
        for name in given.keys() - PARAMETERS.keys():
            raise TypeError(
                f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(PARAMETERS)}"
            )
        for name, row in PARAMETERS.items():
            setattr(self, name, given.get(name, row.default))

    def fit(self, X: Any, y: None = None, *, mask: Any = None, seeds: Any = None) -> Self:
        """Find the textures of an image, or those that several images have in common.

        Parameters
        ----------
        X : image, or list of images
            Real arrays of any dtype, of shape (H, W), or with the bands along ``channel_axis``. With
            ``spatial_dims=3`` or ``planes``, they, masks, seeds and labels are (D, H, W).
        y : ignored
        mask : array of shape (H, W), or a list of them, optional
            Non-zero where there is data.
        seeds : int array of shape (H, W), or a list of them (None for an image without), optional
            Strokes: 0, or c where a pixel is of class c, which becomes segment c. ``n_segments`` then
            counts all classes, and those without strokes are found as well; None takes as many as the
            largest class, at least two. Flat background is then not a segment of its own.

        Raises
        ------
        ValueError, TypeError
            A parameter is not allowed, or image, mask and seeds do not fit each other.

        Notes
        -----
        BLAS uses one thread meanwhile: its products are small here, and more threads would spend several
        times the CPU time waiting for each other.

        Of a dask or zarr array, or an xarray.DataArray on dask, crops are learned from that show all that a
        cheap look at the whole finds (:mod:`texseg.method.sampling`), and ``sample_`` tells which;
        ``labels_`` is then a lazy array of the whole, and ``confidence_`` and ``hierarchy_`` are those of the
        crops. The same is done, with a warning, with an array in memory or mapped from a file that would take
        more than half of the memory that is free; ``labels_`` is then an array, made block by block. Where
        no texture explains a large part of it, that joins the crops, and the array is labelled again.
        """
        return self._fit(X, mask, seeds)

    @computing
    def _fit(
        self,
        X: Any,
        mask: Any,
        seeds: Any = None,
        sample: SceneSample | None = None,
        places: Sequence[tuple[slice, ...]] = (),
    ) -> Self:
        """Fit to images, or to the crops of a scene that a sample tells, or that show ``places``."""
        settings = self._settings()
        if is_lazy(X) and seeds is not None:
            raise ValueError("seeds need an image in memory, got a lazy array; fit a part, then predict")
        images, masks = X, mask
        by_blocks = seeds is None and goes_by_blocks(X, settings, settings.n_segments)
        if by_blocks:
            images, masks, sample = crops_of(X, mask, settings, places)
            settings = settings.changed(flat_ground=False)  # crops do not see how much there is
        with ProgressBar() if settings.verbose else nullcontext() as bar:
            tell = Phases([bar, settings.callback], costs_of(settings))
            rng = random_state_of(settings.random_state)
            learned = learn_scenes(images, masks, seeds, settings, rng, tell)
            divider = Divider(learned.settings, rng, tell, () if sample is None else sample.windows)
            fit = divider.divide(learned.scenes, learned.features, learned.n_classes)
        ground = profile_of_ground(
            learned.originals, [scene.ground for scene in learned.scenes], fit.textures.features
        )
        self._publish(fit, isinstance(images, (list, tuple)), ground)
        if by_blocks and sample is not None:
            self.sample_ = sample
            self._hierarchy = self.hierarchy_  # of the crops, to which labels belong so far
            looks = settings.n_axes == 2 and self.cue_ == "texture" and not is_lazy(X)
            novel: list[Any] | None = [] if looks else None
            self.labels_ = self._labels_by_blocks(X, mask, novel=novel)
            if novel and learns_again(sample.record(), self.n_segments, self.grow):
                return self._fit(X, mask, places=novel)
            if novel:
                warn(unexplained(novel, self.n_segments_))
        self._warn_of_fewer(fit)
        return self

    def _warn_of_fewer(self, fit: Division) -> None:
        n_found, n_segments, k_min = self.n_segments_, self.n_segments, self.k_min
        if n_segments is not None and n_found < n_segments:
            warn(
                f"{n_segments} segments requested, only {n_found} found: no further textures "
                "could be distinguished"
            )
        if fit.selection is not None and k_min > 2 and n_found < k_min:
            warn(
                f"k_min is {k_min}, but only {n_found} could be distinguished; to search for as many, pass "
                f"n_segments={k_min} (-k {k_min})"
            )
        if fit.classes is not None:
            self._warn_of_unused()

    def _warn_of_unused(self) -> None:
        missing = np.setdiff1d(np.arange(1, self.n_segments_ + 1), self._used())
        if len(missing):
            warn(
                f"nothing was found for class {', '.join(map(str, missing))}: no further "
                "textures could be distinguished; paint it, or request fewer"
            )

    @computing
    def refit(self, seeds: Any) -> Self:
        """Correct the segments by strokes, from the present state; filters and clusters stay.

        Classes are learned from all their strokes, so pass every stroke each time, not only new ones.
        Segments without strokes keep their look, and a stroke with a new number adds a segment. Names stay.
        The model keeps what this needs of the images while it is in memory, not in a file. Borders are
        learned again where more than a tenth of the image changes its segment.

        Parameters
        ----------
        seeds : int array of shape (H, W), or a list of them (None for an image without)
            0, or c where a pixel is of class c, which is segment c.

        Raises
        ------
        ValueError, TypeError
            The seeds do not fit the images; or the model was loaded from a file or a pickle, has flat
            background, or has no prior on the map.

        Examples
        --------
        >>> from texseg import TextureSegmenter
        >>> rows, columns = np.mgrid[:64, :96]
        >>> image = np.where(columns < 48, np.sin(rows), np.sin(columns / 2))
        >>> seeds = np.zeros(image.shape, int)
        >>> seeds[30:33, 10:40], seeds[30:33, 60:90] = 2, 1
        >>> model = TextureSegmenter(n_segments=2).fit(image).refit(seeds)
        >>> model.labels_[5, [5, 90]].tolist()
        [2, 1]
        """
        self._check_is_fitted()
        if self._division is None:
            raise ValueError(
                "refit needs the images that were fitted, which a model from a file or a pickle does not "
                "hold; call fit(image, seeds=seeds)"
            )
        if self.ground_ is not None:
            raise ValueError("seeds cannot be combined with flat background; fit with flat_ground=False")
        if self._is_of_crops():
            raise ValueError("refit needs images that were fitted as a whole, not crops of a large one")
        several, scenes = isinstance(self.labels_, list), self._division.scenes
        refuse_seeds_without_cells(self._settings())
        shapes, masks = [scene.shape for scene in scenes], [scene.mask for scene in scenes]
        strokes, n_classes = checked_seeds(seeds, shapes, masks, several=several, n_segments=None)
        n_classes = max(n_classes, self.n_segments_)
        missing = np.setdiff1d(np.arange(self.n_segments_ + 1, n_classes + 1), classes_in(strokes))
        if len(missing):
            raise ValueError(
                f"seeds must number new classes without gaps: class {missing[0]} is neither painted nor a "
                f"segment, which are 1 to {self.n_segments_}"
            )
        names = (*self.names_, *[""] * (n_classes - self.n_segments_))
        options = {"min_size": self.min_size, "present": self._images()}
        fit = repaint(self._division, strokes, n_classes, **options)
        self._publish(fit, several)
        self.names_ = names
        self._warn_of_unused()
        return self

    @computing
    def predict(self, X: Any, *, mask: Any = None, unknown: bool = False, rescale: bool = False) -> Labels:
        """Find the learned textures again.

        Parameters
        ----------
        X : image of shape (H, W), or with bands along ``channel_axis``; or a list of images
            As many bands as were learned from. The intensities are used as they are: what was black when
            the model was fitted is black here. A dask or zarr array, or an xarray.DataArray on dask, gives
            a lazy array of the labels of the whole, see :mod:`texseg.method.blocks`.
        mask : array of shape (H, W), or a list of them, optional
        unknown : bool, default=False
            Give the label ``n_segments_ + 1`` to what no learned texture explains.
        rescale : bool, default=False
            Bring the values of these images, all encoded alike, to the range that was learned: for scenes
            that are stored in another type, or by another factor or constant.

        Returns
        -------
        int32 array of shape (H, W), or a list of them
        """
        self._check_is_fitted()
        check_flags(unknown=unknown, rescale=rescale)
        settings = self._settings()
        large = goes_by_blocks(X, settings, self.n_segments_)
        if is_lazy(X) or (large and self._sees_the_same_in_blocks(X, rescale)):
            if rescale:
                raise ValueError("rescale=True needs images in memory, got a lazy array")
            if self.ground_ is not None:
                raise ValueError(
                    "the model distinguishes flat background from textures, which needs the whole image; fit "
                    "with flat_ground=False, or mask the background"
                )
            return self._labels_by_blocks(X, mask, unknown)
        labels, _ = self.predict_with_confidence(X, mask=mask, unknown=unknown, rescale=rescale)
        return labels

    def _labels_by_blocks(
        self, X: Any, mask: Any, unknown: bool = False, novel: list[Any] | None = None
    ) -> Labels:
        s = self._settings()
        request = Request(s.smoothness, s.min_size, s.nodata, unknown)
        about: Any = {"n_axes": s.n_axes, "novel": novel}
        labels: Labels = label_array(X, self.textures_, request, s.channel_axis, mask, **about)
        return labels

    @computing
    def predict_with_confidence(
        self, X: Any, *, mask: Any = None, unknown: bool = False, rescale: bool = False
    ) -> tuple[Labels, Values]:
        """Find the learned textures again, with the confidence of each label, in one pass.

        Parameters
        ----------
        X, mask, unknown, rescale
            Those of :meth:`predict`; the images are in memory.

        Returns
        -------
        labels : int32 array of shape (H, W), or a list of them
        confidence : float32 array of shape (H, W), or a list of them
            Calibrated probability of every pixel's label; 0 where there is no data, and where no texture
            explains it.
        """
        check_flags(unknown=unknown, rescale=rescale)
        results, sure = [], []
        for scene in self._scenes(X, mask, rescale):
            novel = self.textures_.novelty(scene) if unknown else None
            labels, confidence = label_scene(scene, self.textures_, self._smoothness, self.min_size)
            if novel is not None:
                known = labels == 0 if scene.ground is None else (labels == 0) | scene.ground
                labels[novel & ~known], confidence[novel & ~known] = self.n_segments_ + 1, 0
            results.append(labels)
            sure.append(confidence)
        if unknown:
            share = np.mean(np.concatenate([labels[labels > 0] for labels in results]) > self.n_segments_)
            if share > _MOSTLY_UNKNOWN:
                warn(
                    f"{share:.0%} of the pixels are unknown to the model: other textures, another "
                    "magnification, or values that are stored in another way"
                )
        return (results, sure) if isinstance(X, (list, tuple)) else (results[0], sure[0])

    @computing
    def predict_proba(self, X: Any, *, mask: Any = None, rescale: bool = False) -> Values:
        """Probability of every segment at every pixel, calibrated against mosaics with known truth.

        The label of a pixel has the largest (before ``min_size`` merges parts).

        Returns
        -------
        float32 array of shape (H, W, n_segments_), or a list of them
            Sums to one over the segments; zeros where there is no data.
        """
        self._check_is_fitted()
        check_flags(rescale=rescale)
        results = []
        for scene in self._scenes(X, mask, rescale):
            planes = probabilities(scene, self.textures_, self._smoothness)
            results.append(np.moveaxis(planes, 0, -1))
        return results if isinstance(X, (list, tuple)) else results[0]

    def report(self, path: str | os.PathLike[str], image: Any, *, mask: Any = None, **options: Any) -> None:
        """Write the HTML file ``path`` about the segmentation, to be clicked through in any browser.

        ``image`` (and ``mask``, non-zero where there is data) is the one that was fitted, since the model
        keeps none; ``options`` are title, names of the segments, and labels of another image, see
        :func:`texseg.report.write_report`.
        """
        self._check_is_fitted()
        texseg.report.write_report(self, image, path, mask=mask, **options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was learned to a model file: plain data, no pickle; see :meth:`load`.

        The file keeps ``pixel_size_`` (height, width, unit) if you set it, as ``texseg fit`` does. A file
        that is not a model is never replaced (FileExistsError).
        """
        self._check_is_fitted()
        names = ["channel_axis", "spatial_dims", "spacing", "planes", "plane_coupling", "nodata", "log"]
        names += ["crop_bar", "min_size", "preset"]
        parameters = {name: getattr(self, name) for name in names} | {"smoothness": self._smoothness}
        save_textures(
            path, self.textures_, parameters, self.names_, self.ground_, self.colours_, self.pixel_size_
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model file; the result can :meth:`predict`, and holds no labels of its own.

        Raises
        ------
        texseg.method.modelfile.ModelFileError
            The file is missing, broken, foreign, or written by a newer version.
        """
        textures, parameters, names, ground, colours, size = read_textures(path)
        model = cls(**parameters)
        model.colours_, model.pixel_size_ = colours, size
        model.textures_, model.names_, model.ground_ = textures, names, ground
        model._describe()
        return model

    @property
    def confidence_(self) -> Values:
        """Calibrated probability (H, W) of every pixel's label; after an edit, found when it is requested."""
        if "_confidence" not in self.__dict__:
            self._confidence = self._probabilities_of_labels()
        sure = self._confidence
        return sure if len(sure) > 1 or isinstance(self.labels_, list) else sure[0]

    @computing
    def _probabilities_of_labels(self) -> list[NDArray[np.floating]]:
        if self._division is None:
            raise AttributeError(
                "confidence_ needs the images that were fitted, which a model from a file or a pickle does "
                "not hold; predict_with_confidence(image) gives that of an image"
            )
        scenes, textures, smoothness = self._division.scenes, self.textures_, self._smoothness
        if self._is_of_crops():
            return [label_scene(scene, textures, smoothness)[1] for scene in scenes]
        pairs = zip(scenes, self._images(), strict=True)
        return [confidence_of(scene, textures, smoothness, image) for scene, image in pairs]

    @property
    def hierarchy_(self) -> Hierarchy:
        """Coarse and fine segmentations of the images that were fitted, made when one is requested."""
        self._check_is_fitted()
        if self._division is None:
            raise AttributeError("hierarchy_ needs a model fitted in this session")
        if not hasattr(self, "_hierarchy"):
            if self._is_of_crops():
                raise AttributeError(
                    "hierarchy_ is not available after editing an image that was fitted on crops"
                )
            labels, used = self._images(), self._used()
            if len(used) < self.n_segments_:  # which strokes leave their number
                labels = [np.searchsorted([0, *used], image).astype(np.int32) for image in labels]
            has_ground, search = self.ground_ is not None, self._division.search
            levels = partial(_nested, labels, has_ground, search, self.k_max, self.n_jobs)
            self._hierarchy = Hierarchy(levels, isinstance(self.labels_, list))
        return self._hierarchy

    def _is_of_crops(self) -> bool:
        """Tell whether textures were learned from crops of a larger image."""
        return [image.shape for image in self._images()] != [one.shape for one in self._division.scenes]

    def _sees_the_same_in_blocks(self, X: Any, rescale: bool) -> bool:
        """Tell whether nothing has to be known of the whole to label an array as it is."""
        bands = 1 if self.channel_axis is None or np.ndim(X) != 3 else X.shape[self.channel_axis % 3]
        return not rescale and self.ground_ is None and bands == self.textures_.features.n_bands

    def _used(self) -> NDArray[np.integer]:
        """Segments with pixels in the images that were fitted."""
        found = np.unique(np.concatenate([np.unique(image) for image in self._images()]))
        return found[found > 0]

    def _settings(self) -> Settings:
        """Validate all parameters before anything is computed."""
        return checked({name: getattr(self, name) for name in PARAMETERS})

    def _scenes(self, X: Any, mask: Any, rescale: bool) -> list[Scene]:
        self._check_is_fitted()
        has_ground = self.ground_ is not None
        return known_scenes(X, mask, self._settings(), self.textures_.features, has_ground, rescale)

    def _publish(self, fit: Division, is_list: bool, ground: NDArray[np.floating] | None = None) -> None:
        """Set all learned attributes at once, so that an ended fit leaves nothing half new."""
        for old in ("sample_", "selection_", "_hierarchy", "names_", "_confidence"):
            self.__dict__.pop(old, None)
        self.textures_, self.history_, self.ground_ = fit.textures, fit.search.history, ground
        self._division = fit._replace(labelled=[])
        if fit.selection is not None:
            self.selection_ = fit.selection
        labels, self._confidence = [list(each) for each in zip(*fit.labelled, strict=True)]
        self.labels_ = labels if is_list else labels[0]
        self._describe()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to the images: a pickled model can predict, and keeps its labels."""
        getattr(self, "confidence_", None)  # found now, where an edit left it open
        state: dict[str, Any] = super().__getstate__()  # type: ignore[assignment]
        return {name: value for name, value in state.items() if name not in ("_hierarchy", "_division")}

    def __copy__(self) -> Self:
        """Unlike a pickled model, a copy keeps what belongs to the images."""
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    @property
    def _smoothness(self) -> float:
        return self._settings().smoothness

    def _describe(self) -> None:
        features = self.textures_.features
        profiles = self.textures_.profiles
        if self.ground_ is not None:
            profiles = np.concatenate([self.ground_.reshape(1, -1), profiles])
        self.n_segments_ = len(profiles)
        self.profiles_ = profiles.reshape(len(profiles), -1, features.n_bins)
        self.names_ = getattr(self, "names_", ("",) * self.n_segments_)
        self.channel_names_ = features.names
        self.cue_: Literal["texture", "values"] = "texture" if features.has_filters else "values"


def _nested(
    labels: list[NDArray[np.int32]], has_ground: bool, search: Search, k_max: int, n_jobs: int | None
) -> Levels:
    """Nest a result between coarser and finer segmentations."""
    with one_blas_thread(), crew_of(n_jobs):
        settings = search.settings
        tree = search.tree(n_textures(k_max, has_ground))
        of_textures = [np.maximum(image - has_ground, 0) for image in labels]
        levels = levels_of(of_textures, tree, search.cells, search.grids, settings.potts.beta)
    return levels_beside_ground(levels, [image == 1 for image in labels]) if has_ground else levels


@takes_parameters
def segment(
    image: "ArrayLike",
    n_segments: int | None = None,
    *,
    mask: "ArrayLike | None" = None,
    seeds: "ArrayLike | None" = None,
    **parameters: Unpack[Parameters],
) -> NDArray[np.int32]:
    """Divide an image by its textures: the labels of a fitted :class:`texseg.TextureSegmenter`.

    Parameters
    ----------
    image : real array of shape (H, W), or with bands along ``channel_axis``
    n_segments : int, optional
        Number of textures; None chooses it between ``k_min`` and ``k_max``.
    mask : array of shape (H, W), optional
        Non-zero where there is data.
    seeds : int array of shape (H, W), optional
        Strokes: 0, or c where a pixel is of class c, which gets label c; see
        :meth:`texseg.TextureSegmenter.fit`.
    **parameters
        See :class:`texseg.TextureSegmenter`.

    Returns
    -------
    int32 array of shape (H, W)
        1 .. ``n_segments``, ordered by texture energy, or as painted; 0 only where there is no data. A lazy
        array where the image is one, see :meth:`texseg.TextureSegmenter.fit`.

    Examples
    --------
    >>> rows, columns = np.mgrid[:64, :96]
    >>> image = np.where(columns < 48, np.sin(rows), np.sin(columns / 2))
    >>> labels = segment(image, n_segments=2)
    >>> labels.dtype, labels.shape, labels.min(), labels.max()
    (dtype('int32'), (64, 96), np.int32(1), np.int32(2))
    """
    segmenter = Segmenter(n_segments, **parameters)
    labels: Any = segmenter.fit(image, mask=mask, seeds=seeds).labels_
    return labels
