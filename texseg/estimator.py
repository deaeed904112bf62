"""The segmenter as an estimator of scikit-learn."""

from html import escape
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import estimator_html_repr

from texseg.io.display import html_picture, size_in_words, to_rgb
from texseg.io.regions import segment_table
from texseg.parameters import documents_parameters
from texseg.segmenter import Segmenter

__all__ = ["TextureSegmenter"]


@documents_parameters
class TextureSegmenter(Segmenter, ClusterMixin, BaseEstimator):
    """Divide images by their textures.

    Gabor responses become local histograms, the asymmetric clustering model is fitted to them ([1]_), and its
    clusters go back to pixels.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    labels_ : int32 array of shape (H, W), or a list of them when a list was fitted
        1 .. ``n_segments_``, ordered by texture energy (mean bin over the filters), faintest first, whatever
        the seed (flat background, if there is any, is 1); 0 only where there is no data. With strokes,
        class c has label c.
    n_segments_ : int
        Segments found; fewer than ``n_segments`` where the image does not hold as many, with a warning.
    names_ : tuple of ``n_segments_`` strings
        Names that were given to the segments (:meth:`rename`), empty where there is none.
    profiles_ : float array of shape (n_segments_, C, n_bins)
        Histograms of every segment, each channel with sum one ([1]_ Eq. 24).
    ground_ : float array of shape (C, n_bins), or None
        Profile of flat background, if there is any.
    channel_names_ : tuple of C strings
    confidence_ : float32 array of shape (H, W), or list
        Calibrated probability of every pixel's label; 0 where there is no data.
    selection_ : texseg.method.number.Selection
        When the number was chosen: the probability of every number from ``k_min`` to as many as there are
        clusters to merge, at most ``k_max``, and that of a single texture; print it to read it in words. Flat
        ground counts as one of them.
    hierarchy_ : texseg.method.hierarchy.Hierarchy
        Segmentations into 1 to about ``k_max`` segments, nested in each other and in ``labels_``, which is
        one of them; made when it is first requested.
    cue_ : {"texture", "values"}
        What the segments differ in.
    sample_ : texseg.method.sampling.SceneSample
        Of a lazy array, or one that is too large for the memory: from which crops textures were learned.
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

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Give the parameters that are not the default and, after a fit, what was found."""
        text: str = super().__repr__(N_CHAR_MAX)
        if not hasattr(self, "n_segments_"):
            return text
        found = f"{self.n_segments_} segment{'s' * (self.n_segments_ != 1)} by {self.cue_}"
        if (labels := getattr(self, "labels_", None)) is not None:
            images = labels if isinstance(labels, list) else [labels]
            found += f" in {len(images)} images" if len(images) > 1 else " in"
            found += f"{' of' * (len(images) > 1)} {size_in_words(images[0].shape)} pixels"
        names = ", ".join(name for name in self.names_ if name)
        return f"{text}: {found}" + f", named {names}" * bool(names)

    def _repr_html_(self) -> str:
        """Show the overlay, the number with its odds, and a table of the segments."""
        labels = getattr(self, "labels_", None)
        if not isinstance(labels, np.ndarray) or self._division is None:
            return str(estimator_html_repr(self))
        scene = self._division.scenes[0]
        picture = None
        if scene.planes is not None and scene.shape == labels.shape:
            picture = to_rgb(np.stack(scene.planes.bands, axis=-1), scene.mask, labels.ndim)
        lines = [escape(repr(self))]
        if hasattr(self, "selection_"):
            lines.append(f"number chosen: {escape(str(self.selection_))}")
        rows = "".join(
            f'<tr><td style="background:{row.colour}">&emsp;</td><td>{row.label} {escape(row.name)}</td>'
            f"<td>{row.fraction:.1%}</td></tr>"
            for row in segment_table(labels.reshape(-1, labels.shape[-1]), names=self.names_)
        )
        return f"{html_picture(picture, labels)}<p>{'<br>'.join(lines)}</p><table>{rows}</table>"

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}
