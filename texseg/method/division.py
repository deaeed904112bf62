"""From scenes to labels: by texture, by plain values, by strokes, or by another model of the family."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from texseg.channels.encode import Features
from texseg.counts.axes import largest_part
from texseg.counts.sites import sides_of
from texseg.method.clusters import Record, Search
from texseg.method.cues import EXACT, are_flat, have_few, measured, odds_of_values
from texseg.method.labelling import Labelled, Window, label_scene
from texseg.method.number import Selection, choose_number
from texseg.method.sampling import FEWEST_CROPS, placed
from texseg.method.scenes import warn
from texseg.method.seeds import seeded_textures
from texseg.method.textures import Scene, Textures, cell_sites, effective_observations, mean_values
from texseg.parameters import Settings
from texseg.pixels.composites import label_sizes

_RARE = 0.1  # of an image; a note tells of less that may be one more segment
_CHANGED = 0.1  # share of the cells that must change their class for borders to be learned again
_LIKELY = 1.0  # log-odds from which on that is said; from 0 it was said of half of the mosaics of 12 textures
_DOUBTFUL = -3.0  # the same of a scene, of which few crops are seen


class Division(NamedTuple):
    """Scenes, divided."""

    textures: Textures
    search: Search  # the search for clusters of cells, with the record of its steps
    scenes: list[Scene]  # with the channels that were used: all of them, or only the plain values
    labelled: list[Labelled]
    selection: Selection | None = None  # set if the number of segments was chosen
    classes: NDArray[np.intp] | None = None  # (N,), class of every cell from 0, set if there were strokes
    rival: "Division | None" = None
    """The division by the other cue, if both were compared and kept: new strokes may reverse the choice."""

    def unpainted(self) -> "Division":
        """Forget what was learned from strokes."""
        return self._replace(classes=None, rival=self.rival and self.rival._replace(classes=None))


@dataclass(frozen=True)
class Divider:
    """Divide scenes as requested."""

    settings: Settings
    rng: np.random.RandomState
    tell: Callable[..., Any]
    crops: Sequence[tuple[slice, ...]] = ()  # their places in the scene that they are from, if they are crops

    def divide(self, scenes: list[Scene], features: Features, n_classes: int | None = None) -> Division:
        """Divide scenes by texture, by plain values, or by what explains more; see `texseg.method.cues`.

        ``n_classes`` says that there are seeds, from which both learn.
        """
        search = self._search(scenes, features)
        selection, classes, rare = None, None, list[NDArray[np.bool_]]()
        if n_classes is None:
            profiles, selection, rare = self._profiles(search, scenes)
            textures = search.textures(_by_energy(profiles, features), features)
        else:
            self.tell("clusters")
            textures, classes = seeded_textures(search, scenes, features, n_classes)
        textures = self._with_borders(search, scenes, textures)
        by_texture = Division(textures, search, scenes, [], selection, classes)
        by_texture = _labelled(by_texture, self.settings.min_size, partial(self.tell, "pixels"))
        division = self._by_cue(by_texture, n_classes)
        if rare and division.textures.features.has_filters:
            self._note_one_more(search, rare, len(division.textures.profiles) + 1)
        return division

    def _with_rare(
        self, search: Search, profiles: NDArray[np.floating]
    ) -> tuple[NDArray[np.floating], list[NDArray[np.bool_]]]:
        """Let rare textures replace wrong splits or, in crops, join; give the cells of what may be one."""
        s, K = self.settings, len(profiles)
        is_scene = s.n_axes == 2 and len(self.crops) >= FEWEST_CROPS
        if s.model != "acm" or s.smoothness == 0 or not (is_scene or K > 1):
            return profiles, []
        most = s.k_max if is_scene and s.n_segments is None and s.grow else K
        crops, least = (self.crops, _DOUBTFUL) if is_scene else ((), _LIKELY if s.n_segments else np.inf)
        profiles, taken, left = search.with_novelties(profiles, most, least, crops)
        if (number := len(profiles)) > K:
            warn(
                f"what is rare at {self._where(search, taken)} has a segment of its own; the number of "
                f"segments grew from {K} to {number}, grow=False (--no-grow) keeps it"
            )
        sizes = search.cells.sizes
        return profiles, [cells for cells in left if is_scene or sizes @ cells < _RARE * sizes.sum()]

    def _note_one_more(self, search: Search, rare: list[NDArray[np.bool_]], number: int) -> None:
        """Say how much may be one more segment, and where."""
        share = float(search.cells.sizes @ np.any(rare, axis=0)) / float(search.cells.sizes.sum())
        remedy = f"try n_segments={number} (-k {number}), or paint a seed there"
        whole, where = "crops" if self.crops else "image", self._where(search, rare)
        warn(f"{share:.1%} of the {whole} may be one more segment, most of it at {where}: {remedy}")

    def _where(self, search: Search, parts: Sequence[NDArray[np.bool_]]) -> str:
        """Name the places of some cells."""
        found = [self._place(search, marked) for marked in parts]
        if len(search.grids) == 1 or self.crops:
            return placed(*(window for window, _ in found))
        return "; ".join(f"{placed(window)} of image {index}" for window, index in found)

    def _by_cue(self, by_texture: Division, n_classes: int | None) -> Division:
        s = self.settings
        if s.model != "acm" or s.smoothness == 0 or s.value_weight == 0 or s.cue == "texture":
            return by_texture
        if s.cue == "values":
            return self._by_values(by_texture, n_classes)
        seen = _seen(by_texture)
        scenes, features = by_texture.scenes, by_texture.textures.features
        if odds_of_values(*seen) <= 0 and not are_flat(scenes, features):  # whatever the values tell
            return by_texture
        return _better(by_texture, self._by_values(by_texture, n_classes), seen)

    def _place(self, search: Search, marked: NDArray[np.bool_]) -> tuple[Window, int]:
        """Where the largest part of some cells (N,) lies, and in which image it is."""
        grids = search.grids
        parts = np.split(marked, np.cumsum([grid.n_cells for grid in grids])[:-1])
        index = int(np.argmax([part.sum() for part in parts]))
        grid = grids[index]
        places = np.nonzero(largest_part(parts[index].reshape(grid.shape)))
        starts = [axis.start for axis in self.crops[index]] if self.crops else [0] * len(places)
        spans = zip(starts, places, grid.sides, grid.image_shape, strict=True)
        window = tuple(
            slice(start + int(at.min()) * side, start + min((int(at.max()) + 1) * side, length))
            for start, at, side, length in spans
        )
        return window, index

    def _with_borders(self, search: Search, scenes: list[Scene], textures: Textures) -> Textures:
        """Learn what the borders between textures look like, if that is requested."""
        search.forget_windows()
        s = self.settings
        seed = self.rng.randint(2**31)  # drawn in any case: what follows must not depend on borders
        if not s.learned_borders or s.smoothness == 0:
            return textures
        self.tell("borders")
        return textures.with_borders(scenes, s.smoothness, np.random.default_rng(seed))

    def _search(self, scenes: list[Scene], features: Features) -> Search:
        """Count the cells of the scenes."""
        self.tell("histograms")
        s = self.settings
        cells, grids = cell_sites(scenes, features, s.cell)
        sides = sides_of(features.wavelengths[: features.n_filters], s.windows)
        beta = effective_observations(features.bank, sides)
        return Search(cells, grids, features.wavelengths, s, beta, self.rng)

    def _profiles(
        self, search: Search, scenes: list[Scene]
    ) -> tuple[NDArray[np.floating], Selection | None, list[NDArray[np.bool_]]]:
        """Find as many clusters of the cells as requested or chosen; see :mod:`texseg.method.clusters`.

        Also gives the cells of what may be one more.
        """
        has_ground = any(scene.ground is not None for scene in scenes)
        selection = None
        if self.settings.n_segments is None:
            self.tell("number")
            tree = search.tree(n_textures(self.settings.k_max, has_ground))
            selection = choose_number(tree, n_textures(self.settings.k_min, has_ground))
            K = selection.chosen
        else:
            K = self.settings.n_segments - has_ground
        if self.settings.model != "acm":
            self.tell("clusters")
            profiles = self._of_model(search, K)
        elif selection is None:
            self.tell("annealing")
            profiles = search.of_number(K, self.tell)
        else:
            self.tell("clusters")
            profiles = search.best_level([tree], K)
        found = len(profiles)
        profiles, rare = self._with_rare(search, profiles)
        if selection is not None:  # flat background is a segment, too, and never the only one
            numbers, chosen = selection.n_segments + has_ground, selection.chosen + has_ground
            selection = selection._replace(n_segments=numbers, chosen=chosen + len(profiles) - found)
        return profiles, selection, rare

    def _of_model(self, search: Search, n_segments: int) -> NDArray[np.floating]:
        """Let another model of the family cluster the windows; pixels get their labels as usual."""
        from texseg.models.sites import fit_sites  # brings scikit-learn, a second of imports

        windows = search.windows
        K = min(n_segments, windows.shape[0])
        fitted = fit_sites(self.settings.model, windows, K, random_state=search.rng)
        search.history[:] = [
            Record(self.settings.model, step, r.beta, r.free_energy, fitted.row_posteriors_.shape[1], 0)
            for step, r in enumerate(fitted.history_, start=1)
        ]
        members = np.asarray(fitted.row_posteriors_, np.float32) * (windows.sizes > 0)[:, None]
        return windows.profiles(members)

    def _by_values(self, by_texture: Division, n_classes: int | None) -> Division:
        """Divide scenes into as many segments by plain values, at the scale of pixels."""
        search, features = by_texture.search, by_texture.textures.features
        kept = np.flatnonzero(features.wavelengths == 0)
        features = features.values_alone()
        scenes = [
            Scene(scene.bins[kept], scene.mask, scene.planes, scene.ground, scene.seeds, scene.spacing)
            for scene in by_texture.scenes
        ]
        settings = self.settings.for_values(float(features.weights.sum()))
        cells, grids = cell_sites(scenes, features, settings.cell)
        beta = settings.potts.beta
        search = Search(cells, grids, features.wavelengths, settings, beta, self.rng, search.history)
        K = len(by_texture.textures.profiles)
        by_values = Division(by_texture.textures, search, scenes, [], by_texture.selection)
        if n_classes is not None:
            textures, classes = seeded_textures(search, scenes, features, n_classes)
            return _labelled(by_values._replace(textures=textures, classes=classes), settings.min_size)
        means = np.concatenate([mean_values(*pair, features) for pair in zip(scenes, grids, strict=True)])
        numbers = range(0)
        if by_texture.selection is not None and are_flat(scenes, features):  # as many as explain the values
            has_ground = any(scene.ground is not None for scene in scenes)
            first, last = (n_textures(k, has_ground) for k in (self.settings.k_min, self.settings.k_max))
            numbers = range(first, last + 1) if have_few(means[cells.sizes > 0], last) else numbers
        tried = (self._of_values(by_values, means, number) for number in numbers)
        exact = (each for each in tried if _measured(each, by_texture)[2] <= EXACT)
        best = next(exact, None) or self._of_values(by_values, means, K)
        if best.selection is None:
            return best
        found = best.selection.chosen - K + len(best.textures.profiles)
        return best._replace(selection=best.selection._replace(by_values=True, chosen=found))

    def _of_values(self, division: Division, means: NDArray[np.floating], number: int) -> Division:
        """Divide by plain values into ``number`` segments, if so many are found."""
        tried = []
        for is_mixture in (True, False):
            profiles = division.search.of_values(means, number, is_mixture)
            features = division.textures.features.values_alone()
            textures = division.search.textures(_by_energy(profiles, features), features)
            tried.append(_labelled(division._replace(textures=textures), self.settings.min_size))
            if len(tried[-1].textures.profiles) == number:
                return tried[-1]
        return tried[0]


def repaint(
    division: Division,
    strokes: Sequence[NDArray[np.int32] | None],
    n_classes: int,
    *,
    min_size: float,
    present: Sequence[NDArray[np.int32]],
) -> Division:
    """Divide scenes by new strokes, and by both cues if both have been tried.

    Unpainted classes start from the labels in ``present``.
    """
    tried = []
    for before in filter(None, (division, division.rival)):
        pairs = zip(before.scenes, strokes, strict=True)
        scenes = [replace(scene, seeds=own) for scene, own in pairs]
        search, known = before.search, before.textures
        textures, classes = seeded_textures(search, scenes, known.features, n_classes, present)
        if before.classes is not None and len(known.profiles) == n_classes:
            if np.mean(before.classes != classes) <= _CHANGED:
                textures = replace(textures, borders=known.borders)
        tried.append(Division(textures, search, scenes, [], division.selection, classes))
    best = tried[0]
    if len(tried) == 2:
        tried = [_labelled(each, min_size) for each in tried]
        by_values, by_texture = sorted(tried, key=lambda each: each.textures.features.has_filters)
        best = _better(by_texture, by_values, _seen(by_texture))
        best = best._replace(rival=by_values if best is by_texture else by_texture)
    settings, textures = best.search.settings, best.textures
    if settings.learned_borders and textures.borders is None:
        textures = textures.with_borders(best.scenes, settings.smoothness, np.random.default_rng(0))
        best = best._replace(textures=textures, labelled=[])
    return best if best.labelled else _labelled(best, min_size)


def _labelled(
    division: Division, min_size: float, tell: Callable[[int, int], None] = lambda *_: None
) -> Division:
    """Label the scenes, and repeat without the textures that no pixel got, until all are used."""
    scenes, textures, smoothness = division.scenes, division.textures, division.search.settings.smoothness
    first = int(scenes[0].ground is not None)  # label of the first texture, from 0
    while True:
        results, K = [], len(textures.profiles)
        for index, scene in enumerate(scenes):
            tell(index, len(scenes))
            results.append(label_scene(scene, textures, smoothness, min_size))
        areas = np.sum([label_sizes(labels, first + 1 + K) for labels, _ in results], axis=0)
        kept = np.flatnonzero(areas[first + 1 :])
        if len(kept) == K or textures.strokes is not None:  # painted classes keep their numbers
            tell(len(scenes), len(scenes))
            return division._replace(textures=textures, labelled=results)
        textures = textures.take(kept)


def n_textures(n_segments: int, has_ground: bool) -> int:
    """How many of some segments are textures; at least one."""
    return max(1, n_segments - has_ground)


def _better(by_texture: Division, by_values: Division, seen: tuple[float, float, float]) -> Division:
    """Give the division by the cue that is likelier to be right; ``seen`` is that of the one by texture."""
    _, told, left = _measured(by_values, by_texture)
    is_by_values = odds_of_values(*seen, told) > 0 or left <= EXACT
    return by_values._replace(rival=by_texture) if is_by_values else by_texture


def _seen(by_texture: Division) -> tuple[float, float, float]:
    """Mean confidence and raggedness of the labels by texture, and the share of them that values tell."""
    confidence = np.concatenate([sure[own > 0] for own, sure in by_texture.labelled]).mean()
    ragged, told, _ = _measured(by_texture, by_texture)
    return float(confidence), ragged, told


def _measured(division: Division, by_texture: Division) -> tuple[float, ...]:
    """Measure the labels of a division, see `texseg.method.cues.measured`, by the values of all channels."""
    labels = [labels for labels, _ in division.labelled]
    return measured(labels, by_texture.scenes, by_texture.textures.features)


def _by_energy(profiles: NDArray[np.floating], features: Features) -> NDArray[np.floating]:
    """Order profiles by their mean bin over the filters (or the first value if there are none), ascending."""
    tables = profiles.reshape(len(profiles), -1, features.n_bins)[:, : max(1, features.n_filters)]
    return profiles[np.argsort((tables @ np.arange(features.n_bins)).mean(axis=1), kind="stable")]
