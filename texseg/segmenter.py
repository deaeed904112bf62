"""The estimator on images, and the one call."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

import texseg
from texseg.blocks import Request, crops_of, goes_by_blocks, is_lazy, label_array
from texseg.counts.random import random_state_of
from texseg.edits import Editable, Labels, Values
from texseg.method.clusters import Record, Search
from texseg.method.division import Divider, Division, n_textures, repaint
from texseg.method.hierarchy import Hierarchy, Levels, levels_beside_ground, levels_of
from texseg.method.labelling import confidence_of, label_scene, probabilities
from texseg.method.number import Selection
from texseg.method.scenes import Learned, known_scenes, learn_scenes, refuse_seeds_without_cells, warn
from texseg.method.seeds import checked_seeds
from texseg.method.textures import Scene
from texseg.modelfile import (
    ModelFileError,
    class_names_in,
    from_plain_data,
    ground_of,
    load_model,
    parameters_in,
    save_model,
    to_plain_data,
)
from texseg.parameters import PARAMETERS, Parameters, Settings, checked, takes_parameters
from texseg.progress import Phases, ProgressBar, costs_of
from texseg.threads import computing, crew_of, one_blas_thread

__all__ = ["Record", "Segmenter", "segment"]

_MOSTLY_UNKNOWN = 0.9


class _OfChosenNumber:
    """Stands in for `selection_` where a model has none, and says so."""

    def __get__(self, model: Any, owner: type) -> Selection:
        raise AttributeError(
            "selection_ is there after a fit that chooses the number, with n_segments=None and without "
            "strokes; it is not kept in files"
        )


class Segmenter(Editable):
    """What :class:`texseg.TextureSegmenter` does, without what scikit-learn adds to it.

    `segment` and the command use it as it is, and do not wait for scikit-learn to be imported. Parameters and
    attributes stand in :class:`texseg.TextureSegmenter`.
    """

    ground_: NDArray[np.floating] | None = None
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

    @computing
    def fit(self, X: Any, y: None = None, *, mask: Any = None, seeds: Any = None) -> Self:
        """Find the textures of an image, or those that several images have in common.

        Parameters
        ----------
        X : image, or list of images
            Real arrays of any dtype, of shape (H, W), or with the bands along ``channel_axis``.
        y : ignored
        mask : array of shape (H, W), or a list of them, optional
            Non-zero where there is data.
        seeds : int array of shape (H, W), or a list of them (None for an image without), optional
            Strokes: 0, or c where a pixel is of class c, which becomes segment c. ``n_segments`` then
            counts all classes, and those without strokes are found as well; None takes as many as the
            largest class, at least two. Flat ground is then not a segment of its own.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            A parameter is not allowed, or image, mask and seeds do not fit each other.

        Notes
        -----
        BLAS uses one thread meanwhile: its products are small here, and more threads would spend several
        times the CPU time waiting for each other.

        Of a dask or zarr array, or an xarray.DataArray on dask, crops are learned from, evenly spread
        (:func:`texseg.blocks.sample_windows`); ``labels_`` is then a lazy array of the whole, and
        ``confidence_`` and ``hierarchy_`` are those of the crops. The same is done, with a warning, with an
        array in memory or mapped from a file that would take more than half of the memory that is free;
        ``labels_`` is then an array, made block by block.
        """
        settings = self._settings()
        if is_lazy(X) and seeds is not None:
            raise ValueError("seeds need an image in memory, got a lazy array; fit a part, then predict")
        if seeds is None and goes_by_blocks(X, settings.channel_axis, settings.n_segments, settings.preset):
            return self._fit_crops(X, mask, settings)
        return self._fit(X, mask, seeds, settings)

    def _fit(self, X: Any, mask: Any, seeds: Any, settings: Settings) -> Self:
        with ProgressBar(hidden=not settings.verbose) as bar:
            tell = Phases([bar, settings.callback], costs_of(settings))
            rng = random_state_of(settings.random_state)
            learned = learn_scenes(X, mask, seeds, settings, rng, tell)
            s = learned.settings
            divider = Divider(s, s.model, s.n_segments, s.k_min, s.k_max, s.min_size, rng, tell)
            fit = divider.divide(learned.scenes, learned.features, learned.n_classes)
        self._publish(fit, isinstance(X, (list, tuple)))
        self.ground_ = learned._replace(features=fit.textures.features).profile_of_ground()
        self._describe()
        self._warn_of_fewer(fit, learned)
        return self

    def _fit_crops(self, X: Any, mask: Any, settings: Settings) -> Self:
        """Learn from crops of an image that is larger than memory, and label it by blocks."""
        if not is_lazy(X):
            warn(
                f"an image of shape {X.shape} takes more than half of the memory that is free: its textures "
                "are learned from crops, evenly spread, and it is labelled block by block"
            )
        seed = self.random_state if isinstance(self.random_state, (int, np.integer)) else 0
        crops, masks = crops_of(X, settings.channel_axis, mask, int(seed))
        # crops do not see how much flat ground there is
        self._fit(crops, masks, None, settings.changed(flat_ground=False))
        self._hierarchy = self.hierarchy_  # of the crops, to which these labels belong
        self.labels_ = self.predict(X, mask=mask)
        return self

    def _warn_of_fewer(self, fit: Division, learned: Learned) -> None:
        n_found, n_segments, k_min = self.n_segments_, self.n_segments, self.k_min
        if n_segments is not None and n_found < n_segments:
            warn(
                f"{n_segments} segments asked, {n_found} found: the image does not hold more textures that "
                "can be told apart"
            )
        if fit.selection is not None and k_min > 2 and n_found < k_min:
            warn(
                f"k_min is {k_min}, but only {n_found} could be told apart; n_segments={k_min} (-k {k_min}) "
                "searches for as many"
            )
        if learned.n_classes is not None:
            self._warn_of_unused()

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

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            The seeds do not fit the images; or the model was loaded from a file or a pickle, knows flat
            ground, or has no prior on the map.

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
        division: Division | None = getattr(self, "_division", None)
        if division is None:
            raise ValueError(
                "refit needs the images that were fitted, which a model from a file or a pickle does not "
                "hold; call fit(image, seeds=seeds)"
            )
        if self.ground_ is not None:
            raise ValueError("strokes know no flat ground beside them; fit with flat_ground=False")
        several, scenes = isinstance(self.labels_, list), division.scenes
        refuse_seeds_without_cells(self._settings())
        shapes, masks = [scene.shape for scene in scenes], [scene.mask for scene in scenes]
        strokes, n_classes = checked_seeds(seeds, shapes, masks, several=several, n_segments=None)
        n_classes = max(n_classes, self.n_segments_)
        painted = np.unique(np.concatenate([np.unique(own) for own in strokes if own is not None]))
        missing = np.setdiff1d(np.arange(self.n_segments_ + 1, n_classes + 1), painted)
        if len(missing):
            raise ValueError(
                f"seeds must number new classes without gaps: class {missing[0]} is neither painted nor a "
                f"segment, which are 1 to {self.n_segments_}"
            )
        present: Any = self.labels_ if several else [self.labels_]
        division = repaint(
            division, strokes, n_classes, k_max=self.k_max, min_size=self.min_size, present=present
        )
        names = (*self.names_, *[""] * (n_classes - len(self.names_)))
        self._publish(division, several)
        self.names_ = names
        self._describe()
        self._warn_of_unused()
        return self

    @computing
    def predict(self, X: Any, *, mask: Any = None, unknown: bool = False, rescale: bool = False) -> Labels:
        """Find the learned textures again.

        Parameters
        ----------
        X : image of shape (H, W), or with bands along ``channel_axis``; or a list of images
            As many bands as were learned from. The intensities are taken as they are: what was black when
            the model was fitted is black here. A dask or zarr array, or an xarray.DataArray on dask, gives
            a lazy array of the labels of the whole, see :mod:`texseg.blocks`.
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
        textures, settings = self.textures_, self._settings()
        large = goes_by_blocks(X, settings.channel_axis, self.n_segments_, settings.preset)
        if is_lazy(X) or (large and self._sees_the_same_in_blocks(X, rescale)):
            if rescale:
                raise ValueError("rescale=True needs images in memory, got a lazy array")
            if self.ground_ is not None:
                raise ValueError(
                    "the model tells flat ground from textures, for which it needs the whole image; fit with "
                    "flat_ground=False, or mask the ground"
                )
            request = Request(settings.smoothness, settings.min_size, settings.nodata, unknown)
            return label_array(X, textures, request, settings.channel_axis, mask)
        labels, _ = self.predict_with_confidence(X, mask=mask, unknown=unknown, rescale=rescale)
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
        results, sure = [], []
        for scene in self._scenes(X, mask, rescale):
            strange = self.textures_.unfamiliar(scene) if unknown else None
            labels, confidence = label_scene(scene, self.textures_, self._smoothness, self.min_size)
            if strange is not None:
                known = labels == 0 if scene.ground is None else (labels == 0) | scene.ground
                labels[strange & ~known], confidence[strange & ~known] = self.n_segments_ + 1, 0
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
        results = []
        for scene in self._scenes(X, mask, rescale):
            planes = probabilities(scene, self.textures_, self._smoothness)
            results.append(np.moveaxis(planes, 0, -1))
        return results if isinstance(X, (list, tuple)) else results[0]

    def report(self, path: str | os.PathLike[str], image: Any, *, mask: Any = None, **options: Any) -> None:
        """Write one HTML file about the segmentation, to be clicked through in any browser.

        Parameters
        ----------
        path : str or path-like
        image : the image that was fitted
            The model itself keeps no images.
        mask : array of shape (H, W), optional
            Non-zero where there is data.
        **options
            Title, names of the segments, and labels of another image, see
            :func:`texseg.report.write_report`.
        """
        self._check_is_fitted()
        texseg.report.write_report(self, image, path, mask=mask, **options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was learned to a model file: plain data, no pickle; see :meth:`load`."""
        self._check_is_fitted()
        names = ("channel_axis", "nodata", "log", "crop_bar", "min_size", "preset")
        parameters = {name: getattr(self, name) for name in names} | {"smoothness": self._smoothness}
        named = {"class_names": list(self.names_)} if any(self.names_) else {}
        ground = {} if self.ground_ is None else {"ground": self.ground_}
        save_model(path, {"parameters": parameters, **to_plain_data(self.textures_), **ground, **named})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model file; the result can :meth:`predict`, and holds no labels of its own.

        Raises
        ------
        texseg.modelfile.ModelFileError
            The file is missing, broken, foreign, or written by a newer version.
        """
        values = load_model(path)
        try:
            textures = from_plain_data(values)
            model = cls(len(textures.profiles), **parameters_in(values))
            model._settings()
            ground = ground_of(values)
        except KeyError as missing:
            raise ModelFileError(f"{path} holds no texture model: {missing} is missing") from None
        except (TypeError, ValueError) as error:
            raise ModelFileError(f"{path} holds no texture model that makes sense: {error}") from None
        model.textures_, model.names_ = textures, tuple(class_names_in(values))
        model.ground_ = ground
        model._describe()
        return model

    @property
    def confidence_(self) -> Values:
        """Calibrated probability (H, W) of every pixel's label; after an edit, found when it is asked for."""
        if "_confidence" not in self.__dict__:
            self._confidence = self._probabilities_of_labels()
        sure = self._confidence
        return sure if len(sure) > 1 or isinstance(self.labels_, list) else sure[0]

    @computing
    def _probabilities_of_labels(self) -> list[NDArray[np.floating]]:
        if getattr(self, "_division", None) is None:
            raise AttributeError(
                "confidence_ needs the images that were fitted, which a model from a file or a pickle does "
                "not hold; predict_with_confidence(image) gives that of an image"
            )
        scenes, labels = self._division.scenes, self._images()
        if [image.shape for image in labels] != [scene.shape for scene in scenes]:  # crops of a large image
            return [label_scene(scene, self.textures_, self._smoothness)[1] for scene in scenes]
        pairs = zip(scenes, labels, strict=True)
        return [confidence_of(scene, self.textures_, self._smoothness, image) for scene, image in pairs]

    @property
    def hierarchy_(self) -> Hierarchy:
        """Coarse and fine segmentations of the images that were fitted, made when one is asked for."""
        self._check_is_fitted()
        if getattr(self, "_division", None) is None:
            raise AttributeError("hierarchy_ needs a model fitted in this session")
        if not hasattr(self, "_hierarchy"):
            is_list = isinstance(self.labels_, list)
            labels: Any = self.labels_ if is_list else [self.labels_]
            if [image.shape for image in labels] != [scene.shape for scene in self._division.scenes]:
                raise AttributeError("hierarchy_ of the crops of a large image ends with the first edit")
            if self._unused():  # which strokes leave their number
                used = np.unique(np.concatenate([[0], *(np.unique(image) for image in labels)]))
                labels = [np.searchsorted(used, image).astype(np.int32) for image in labels]
            has_ground, search = self.ground_ is not None, self._division.search
            levels = partial(_nested, labels, has_ground, search, self.k_max, self.n_jobs)
            self._hierarchy = Hierarchy(levels, is_list)
        return self._hierarchy

    def _sees_the_same_in_blocks(self, X: Any, rescale: bool) -> bool:
        """Tell whether nothing has to be known of the whole to label an array as it is."""
        bands = 1 if self.channel_axis is None or np.ndim(X) != 3 else X.shape[self.channel_axis % 3]
        return not rescale and self.ground_ is None and bands == self.textures_.features.n_bands

    def _unused(self) -> list[int]:
        """Segments without any pixel in the images that were fitted."""
        images = self.labels_ if isinstance(self.labels_, list) else [self.labels_]
        used = np.unique(np.concatenate([np.unique(image) for image in images]))
        return np.setdiff1d(np.arange(1, self.n_segments_ + 1), used).tolist()

    def _warn_of_unused(self) -> None:
        if unused := self._unused():
            warn(
                f"nothing was found for class {', '.join(map(str, unused))}: the image does not hold more "
                "textures that can be told apart; paint it, or ask for fewer"
            )

    def _settings(self) -> Settings:
        """Validate all parameters before anything is computed."""
        return checked({name: getattr(self, name) for name in PARAMETERS})

    def _scenes(self, X: Any, mask: Any, rescale: bool) -> list[Scene]:
        self._check_is_fitted()
        has_ground = self.ground_ is not None
        return known_scenes(X, mask, self._settings(), self.textures_.features, has_ground, rescale)

    def _publish(self, fit: Division, is_list: bool) -> None:
        """Set all learned attributes at once, so that an ended fit leaves nothing half new."""
        for old in ("selection_", "_hierarchy", "names_", "_confidence"):
            self.__dict__.pop(old, None)
        self.textures_ = fit.textures
        self.history_ = fit.search.history
        self._division = fit._replace(labelled=[])
        if fit.selection is not None:
            self.selection_ = fit.selection
        labels, confidence = [list(each) for each in zip(*fit.labelled, strict=True)]
        self.labels_ = labels if is_list else labels[0]
        self._confidence = confidence

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to the images: a pickled model can predict, and keeps its labels."""
        getattr(self, "confidence_", None)  # found now, where an edit left it open
        state: dict[str, Any] = super().__getstate__()  # type: ignore[assignment]
        left = ("_hierarchy", "_division")
        return {name: value for name, value in state.items() if name not in left}

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
        levels = levels_of(of_textures, tree, search.cells, cell=settings.cell, beta=settings.potts.beta)
    return levels_beside_ground(levels, [image == 1 for image in labels]) if has_ground else levels


@takes_parameters
def segment(
    image: ArrayLike,
    n_segments: int | None = None,
    *,
    mask: ArrayLike | None = None,
    seeds: ArrayLike | None = None,
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
        array where the image is one, see
        :meth:`texseg.TextureSegmenter.fit`.

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
