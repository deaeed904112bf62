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

image = texseg.read_image(ROOT / "sample_images" / "five_textures.png").pixels
model = texseg.TextureSegmenter(n_segments=5).fit(image)
figure, axes = plt.subplots(1, 3, figsize=(10.2, 3.6), dpi=80, layout="constrained")
axes[0].imshow(image, cmap="gray")
axes[0].set_axis_off()
plot.overlay(image, model.labels_, legend=False, ax=axes[1])
plot.confidence(model.confidence_, colorbar=False, ax=axes[2])
for ax, title in zip(axes, ("the image", "its five textures", "confidence"), strict=True):
    ax.set_title(title)
figure.canvas.draw()
picture = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3])
picture.quantize(64).save(ROOT / "docs" / "segments.png", optimize=True)
