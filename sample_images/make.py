"""Make the sample images again: python sample_images/make.py [FOLDER].

Everything comes from the textures and photographs inside the scikit-image package and from the synthetic
textures below; no network is needed, and the same files come out every time. `mountains.tif` alone is kept
as it came.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from scipy import ndimage
from scipy.spatial import KDTree
from skimage import data

from texseg.io.write import write_labels
from texseg.synth import Mosaic, mosaic

TEXTURE_SIDE = 640


def smooth_noise(shape: tuple[int, int], sigma: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Gaussian noise of unit variance, smoothed over `sigma` px, periodic."""
    noise = ndimage.gaussian_filter(rng.normal(size=shape), sigma, mode="wrap")
    return noise / noise.std()


def weave(side: int = TEXTURE_SIDE, thread: float = 9.0, seed: int = 0) -> NDArray[np.float64]:
    """Plain weave: threads of `thread` px, over and under in turn, uneven as hand-made cloth is."""
    rng = np.random.default_rng(seed)
    y, x = np.indices((side, side)) + 1.5 * smooth_noise((2 * side, side), 25, rng).reshape(2, side, side)
    row, column = y / thread, x / thread
    warp_on_top = (np.floor(row) + np.floor(column)) % 2 == 0
    across = np.where(warp_on_top, column, row) % 1 - 0.5
    along = np.where(warp_on_top, row, column) % 1 - 0.5
    roundness = np.cos(np.pi * across) * (0.6 + 0.4 * np.cos(np.pi * along))
    strength = rng.normal(1, 0.12, size=(2, side))
    of_thread = np.where(
        warp_on_top,
        strength[0][np.floor(column).astype(int) % side],
        strength[1][np.floor(row).astype(int) % side],
    )
    return roundness * of_thread + 0.08 * smooth_noise((side, side), 0.7, rng)


def wood(side: int = TEXTURE_SIDE, seed: int = 0) -> NDArray[np.float64]:
    """Grain: noise that is smoothed along a direction of 30 degrees, slightly waving."""
    rng = np.random.default_rng(seed)
    y, x = np.indices((side, side)) + 4 * smooth_noise((2 * side, side), 40, rng).reshape(2, side, side)
    angle = np.pi / 6
    stretched = ndimage.gaussian_filter(rng.normal(size=(2 * side, 2 * side)), (1.2, 14), mode="wrap")
    rows = np.cos(angle) * y - np.sin(angle) * x
    columns = np.sin(angle) * y + np.cos(angle) * x
    return ndimage.map_coordinates(stretched, [rows % (2 * side), columns % (2 * side)], order=1, mode="wrap")


def sand(side: int = TEXTURE_SIDE, seed: int = 0) -> NDArray[np.float64]:
    """Fine grains of about three pixels, all directions alike."""
    rng = np.random.default_rng(seed)
    return smooth_noise((side, side), 0.9, rng) - 0.8 * smooth_noise((side, side), 2.5, rng)


def steel(share: float, side: int = 384, n_grains: int = 45, seed: int = 0) -> Mosaic:
    """Grains of ferrite (1) and, about the `share`, of pearlite (2): lamellae that run as they like in each.

    Ferrite is brighter, but not everywhere: grains differ, and so does the light.
    """
    rng = np.random.default_rng(seed)
    y, x = np.indices((side, side)) + 3 * smooth_noise((2 * side, side), 12, rng).reshape(2, side, side)
    nearest, grains = KDTree(rng.uniform(0, side, (n_grains, 2))).query(np.stack([y, x], axis=-1), k=2)
    grain = grains[..., 0]
    is_pearlite = (rng.permutation(n_grains) < round(share * n_grains))[grain]
    angle = rng.uniform(0, np.pi, n_grains)[grain]
    period = rng.uniform(5, 7.5, n_grains)[grain]
    lamellae = np.sin(
        2 * np.pi * (np.cos(angle) * x + np.sin(angle) * y) / period
        + 0.6 * smooth_noise((side, side), 6, rng)
    )
    grain_border = nearest[..., 1] - nearest[..., 0] < 1.5
    ferrite = rng.normal(0.75, 0.05, n_grains)[grain] - 0.35 * grain_border
    bright = ndimage.gaussian_filter(np.where(is_pearlite, 0.45 + 0.28 * lamellae, ferrite), 0.7)
    bright += 0.05 * smooth_noise((side, side), 0.8, rng)
    bright *= 1 - 0.12 * np.square((np.indices((side, side)) / side - 0.5) * 2).mean(axis=0)
    return Mosaic(np.round(255 * np.clip(bright, 0, 1)).astype(np.uint8), np.where(is_pearlite, 2, 1))


def tinted(grey: NDArray, colour: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Give a grey texture the hue of `colour`, from black over the colour to white."""
    low, high = np.quantile(grey, [0.01, 0.99])
    level = np.clip((grey - low) / (high - low), 0, 1)[..., None]
    tint = np.asarray(colour) / 255
    dark, light = np.minimum(2 * level, 1) * tint, np.maximum(2 * level - 1, 0) * (1 - tint)
    return np.round(255 * (dark + light)).astype(np.uint8)


def mosaics() -> dict[str, Mosaic]:
    """Compose all mosaics; the name of each says what is in it."""
    real = [data.brick(), data.grass(), data.gravel()]
    five = [data.gravel(), data.grass(), weave(), wood(), sand()]
    coloured = [
        tinted(data.brick(), (170, 70, 50)),
        tinted(data.grass(), (90, 130, 50)),
        tinted(data.gravel(), (150, 130, 100)),
        tinted(data.gravel(), (60, 110, 190)),
        tinted(weave(), (60, 110, 190)),
    ]
    return {
        "five_textures": mosaic(five, 5, 512, "voronoi", random_state=4),
        "scattered_textures": mosaic(five, 5, 512, "scattered", random_state=1),
        "three_real_textures": mosaic(real, 3, 384, "voronoi", random_state=2),
        "colour_textures": mosaic(coloured, 5, 384, "voronoi", random_state=3),
        **{f"steel_{i}": steel(share, seed=i) for i, share in enumerate((0.3, 0.5, 0.65), start=1)},
    }


def photographs() -> dict[str, NDArray[np.uint8]]:
    """Collect the photographs that are shipped as they are."""
    return {
        "gravel": data.gravel(),
        "photographer": data.camera(),
        "tissue": data.immunohistochemistry(),
        "cat": data.chelsea(),
    }


def tissue_strokes() -> NDArray[np.uint8]:
    """Strokes on the tissue: 1 on the stroma, 2 on the glands."""
    picture = Image.new("L", (512, 512))
    draw = ImageDraw.Draw(picture)
    for label, line in (
        (1, (190, 320, 230, 450)),
        (1, (470, 60, 450, 330)),
        (2, (60, 60, 210, 190)),
        (2, (330, 60, 420, 230)),
        (2, (70, 300, 110, 480)),
    ):
        draw.line(line, fill=label, width=5)
    return np.asarray(picture)


def main() -> None:
    """Write all files into the folder given, or beside this script."""
    parser = argparse.ArgumentParser(description="Make the sample images again.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, (image, truth) in mosaics().items():
        Image.fromarray(image).save(folder / f"{name}.png", optimize=True)
        write_labels(folder / f"{name}_truth.png", truth)
    for name, image in photographs().items():
        Image.fromarray(image).save(folder / f"{name}.png", optimize=True)
    write_labels(folder / "tissue_strokes.png", tissue_strokes())


if __name__ == "__main__":
    main()
