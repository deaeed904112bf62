"""Make the picture of the README: python docs/make_pictures.py."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

import texseg
from texseg import plot

ROOT = Path(__file__).resolve().parents[1]
SCENES = {
    "colour_textures.png": ("a mosaic", None),
    "tissue.png": ("stained tissue", 2),
    "mountains.tif": ("mountains from space", 4),
}

figure, axes = plt.subplots(2, 3, figsize=(10, 6.4), dpi=80, layout="constrained")
for (file, (title, n_segments)), (above, below) in zip(SCENES.items(), axes.T, strict=True):
    image = texseg.read_image(ROOT / "sample_images" / file)
    model = texseg.TextureSegmenter(n_segments, channel_axis=-1, min_size=100)
    model.fit(image.pixels, mask=image.mask)
    above.imshow(image.pixels)
    above.set_axis_off()
    above.set_title(title)
    chosen = "requested" if n_segments else "found"
    plot.overlay(image.pixels, model.labels_, legend=False, ax=below)
    below.set_title(f"{model.n_segments_} textures {chosen}")
figure.canvas.draw()
picture = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3])
picture.quantize(256).save(ROOT / "docs" / "segments.png", optimize=True)
