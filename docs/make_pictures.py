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
SCENES = {"colour_textures.png": "a mosaic", "tissue.png": "stained tissue"}

figure, axes = plt.subplots(1, 4, figsize=(12.4, 3.4), dpi=80, layout="constrained")
for (file, title), (left, right) in zip(SCENES.items(), axes.reshape(2, 2), strict=True):
    image = texseg.read_image(ROOT / "sample_images" / file).pixels
    model = texseg.TextureSegmenter(channel_axis=-1, min_size=100).fit(image)
    left.imshow(image)
    left.set_axis_off()
    left.set_title(title)
    plot.overlay(image, model.labels_, legend=False, ax=right).set_title(f"{model.n_segments_} segments")
figure.canvas.draw()
picture = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3])
picture.quantize(256).save(ROOT / "docs" / "segments.png", optimize=True)
