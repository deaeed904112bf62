"""Volumes and stacks with known truth: python benchmarks/volumes.py [--only PART] [--size 96] [--number 10].

Parts: *mosaics* of 3, 5 and 8 solid textures, number given; the same volumes *turned* by 90 degrees;
what *peers* reach on them; *fibres* whose planes look alike; *planes* of a stack with noise; *time* and
memory a voxel; *number* chosen; *blocks* in three axes against the whole.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import limit_threads, machine
from texseg import TextureSegmenter
from texseg.method.blocks import ArrayWindows, Request, label_array, plan_blocks
from texseg.method.sampling import read_crops
from texseg.metrics import pixel_accuracy
from texseg.synth import mosaic, solid, volume

DIAGONAL = (0.0, 1.0, 1.0)


def textures(size: int, seed: int) -> list[Any]:
    """Make eight textures of one size."""
    kinds: list[Any] = [
        ("field", 5, ()),
        ("fibres", 7, (1, 0, 0)),
        ("foam", 11, ()),
        ("layers", 6, (0, 1, 1)),
        ("spheres", 8, ()),
        ("fibres", 7, (0, 1, -1)),
        ("field", 9, (1, 1, 1)),
        ("field", 12, ()),
    ]
    return [solid(kind, size, scale, along, seed + n) for n, (kind, scale, along) in enumerate(kinds)]


def mosaics(size: int, number: int, counts: tuple[int, ...] = (3, 5, 8)) -> dict[int, list[Any]]:
    """Make solid mosaics of textures drawn from the eight."""
    found: dict[int, list[Any]] = {k: [] for k in counts}
    for seed in range(number):
        every = textures(size, 100 * seed)
        for k in counts:
            drawn = np.random.default_rng(seed + 10 * k).permutation(8)[:k]
            found[k].append(volume([every[n] for n in drawn], seed))
    return found


def right(image: Any, truth: Any, k: int | None, **parameters: Any) -> float:
    """Give the share of right voxels."""
    labels = TextureSegmenter(k, **parameters).fit(image).labels_
    return share(labels, truth)


def share(labels: Any, truth: Any) -> float:
    """Give the share of right voxels under the best matching of the labels."""
    return float(pixel_accuracy(labels.reshape(len(labels), -1), truth.reshape(len(truth), -1)))


def k_means(image: Any, k: int) -> Any:
    """Cluster local means and spreads at two scales."""
    from sklearn.cluster import KMeans

    values = image.astype(np.float32)
    columns = []
    for sigma in (2, 5):
        mean = ndimage.gaussian_filter(values, sigma)
        spread = np.sqrt(np.maximum(ndimage.gaussian_filter(values**2, sigma) - mean**2, 0))
        columns += [mean.ravel(), spread.ravel()]
    table = np.stack(columns, axis=1)
    table = (table - table.mean(axis=0)) / table.std(axis=0)
    model = KMeans(k, n_init=3, random_state=0).fit(table[::7])
    return model.predict(table).reshape(image.shape) + 1


def forest(image: Any, truth: Any, k: int) -> Any:
    """Train a random forest on scikit-image's features with one stroke a class."""
    from skimage.feature import multiscale_basic_features
    from sklearn.ensemble import RandomForestClassifier

    features = multiscale_basic_features(image, sigma_min=1, sigma_max=8)
    rows, classes = [], []
    for label in range(1, k + 1):
        depth = ndimage.distance_transform_edt(np.pad(truth == label, 1))[1:-1, 1:-1, 1:-1]
        z, y, x = np.unravel_index(depth.argmax(), truth.shape)
        stroke = np.s_[z, max(y - 1, 0) : y + 2, max(x - 15, 0) : x + 16]
        rows.append(features[stroke].reshape(-1, features.shape[-1]))
        classes += [label] * len(rows[-1])
    model = RandomForestClassifier(100, max_depth=10, random_state=0).fit(np.concatenate(rows), classes)
    return model.predict(features.reshape(-1, features.shape[-1])).reshape(truth.shape)


def of_mosaics(size: int, number: int) -> None:
    """Print the share of right voxels."""
    for k, cases in mosaics(size, number).items():
        found = []
        for image, truth in cases:
            start = time.process_time()
            found.append((right(image, truth, k, spatial_dims=3), time.process_time() - start))
        shares, seconds = np.array(found).T
        listed = " ".join(f"{each:.3f}" for each in shares)
        print(f"{k} textures, {size}^3: mean {shares.mean():.4f} ({listed}); {seconds.mean():.0f} CPU s")


def of_turned(size: int, number: int) -> None:
    """Print how much the share changes when a volume is turned."""
    for k, cases in mosaics(size, number, (3, 5)).items():
        for image, truth in cases:
            found = [right(image, truth, k, spatial_dims=3)]
            for axes in ((0, 1), (0, 2), (1, 2)):
                found.append(
                    right(np.rot90(image, 1, axes).copy(), np.rot90(truth, 1, axes), k, spatial_dims=3)
                )
            print(f"{k} textures, as it is and turned about each axis: {np.round(found, 4).tolist()}")


def of_peers(size: int, number: int) -> None:
    """Print what others reach."""
    for k, cases in mosaics(size, number).items():
        found = [
            (
                right(image, truth, k, planes="z", plane_coupling=0),
                share(k_means(image, k), truth),
                share(forest(image, truth, k), truth),
            )
            for image, truth in cases
        ]
        names = "slice by slice, one model; k-means on means and spreads; forest with a stroke a class"
        print(f"{k} textures, {names}: {np.mean(found, axis=0).round(4).tolist()}")


def of_fibres(size: int, number: int) -> None:
    """Print the shares for fibres that lean to either side, and both, which look alike in planes of z."""
    for seed in range(number):
        one, other = (solid("fibres", size, 7, (1, 0, lean), seed + 5 * (lean > 0)) for lean in (-1, 1))
        wide = [solid("fibres", size, 10, (1, 0, lean), seed + 50 + 5 * (lean > 0)) for lean in (-1, 1)]
        image, truth = volume([one, other, np.maximum(*wide)], seed)
        space = right(image, truth, 3, spatial_dims=3)
        planes = right(image, truth, 3, planes="z", cue="texture")
        print(f"fibres: in space {space:.4f}, in planes {planes:.4f}")


def of_planes(size: int, number: int) -> None:
    """Print how labels change between planes of a stack with noise."""
    for seed in range(number):
        rng = np.random.default_rng(seed)
        kinds = [("field", 5, ()), ("fibres", 7, (1, 1, 0)), ("layers", 6, (0, 1, 1)), ("field", 9, ())]
        flat = [solid(kind, (1, 2 * size, 2 * size), scale, along, seed)[0] for kind, scale, along in kinds]
        image, truth = mosaic(flat, 3, 2 * size, random_state=seed)
        stack = np.stack([image + rng.normal(0, 60, image.shape) for _ in range(16)])
        truths = np.broadcast_to(truth, stack.shape)
        found = {}
        for coupling in (0.0, 0.25, 0.5, 1.0):
            labels = TextureSegmenter(3, planes="z", plane_coupling=coupling).fit(stack).labels_
            found[coupling] = (
                round(share(labels, truths), 4),
                round(float((labels[1:] != labels[:-1]).mean()), 5),
            )
        print(f"stack with noise, coupling: (right, changes between neighbours): {found}")


def of_time(size: int, number: int) -> None:
    """Print seconds and bytes of a voxel, against those of a pixel."""
    ((cube, _),) = mosaics(size, 1, (5,))[5]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    TextureSegmenter(5, spatial_dims=3).fit(cube)
    of_voxel = (time.process_time() - start) / cube.size
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / cube.size
    side, kinds = 512, ("field", "layers", "foam", "spheres")
    flat = [solid(kind, (1, side, side), 8, (0, 1, 1), 0)[0] for kind in kinds]  # type: ignore[arg-type]
    image, _ = mosaic(flat, 4, side)
    start = time.process_time()
    TextureSegmenter(4).fit(image)
    of_pixel = (time.process_time() - start) / image.size
    print(f"{1e6 * of_voxel:.2f} us a voxel, {1e6 * of_pixel:.2f} a pixel: {of_voxel / of_pixel:.2f} x")
    print(f"{grown:.0f} bytes a voxel of {size}^3")


def of_number(size: int, number: int) -> None:
    """Print the numbers that are chosen."""
    for k, cases in mosaics(size, number, (1, 2, 3, 5, 8)).items():
        found = [TextureSegmenter(spatial_dims=3, k_min=1).fit(image) for image, _ in cases]
        print(f"{k} textures: chosen {[model.n_segments_ for model in found]}")


def of_blocks(size: int, number: int) -> None:
    """Print how many labels by blocks differ from those of the whole."""
    ((cube, _),) = mosaics(size, 1, (5,))[5]
    source = ArrayWindows(cube, n_axes=3)
    sample, crops = read_crops(source, 0, 8)
    model = TextureSegmenter(5, spatial_dims=3).fit([pixels for pixels, _ in crops])
    whole, plan = model.predict(cube), plan_blocks(cube.shape, model.textures_)
    start = time.process_time()
    wrong = int((label_array(cube, model.textures_, Request(), blocks=plan, n_axes=3) != whole).sum())
    seconds = time.process_time() - start
    print(f"{len(plan)} blocks of {plan.sides} voxels, textures from {sample}: {wrong} of {whole.size}")
    print(f"labels differ from those of the whole; {1e6 * seconds / whole.size:.2f} us a voxel")


PARTS = {name.removeprefix("of_"): part for name, part in globals().copy().items() if name.startswith("of_")}


def main() -> None:
    """Run the parts that are requested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--number", type=int, default=10)
    options = parser.parse_args()
    limit_threads(1)
    print(machine(1))
    warnings.simplefilter("ignore")
    for name in options.only or PARTS:
        print(f"# {name}", flush=True)
        PARTS[name](options.size, options.number)


if __name__ == "__main__":
    main()
