"""Image files with bytes flipped, cut out, repeated or cut off, made from small sound files."""

from typing import NamedTuple

import imagecodecs
import io_scenes
import numpy as np
import tifffile
from PIL import Image

WAYS = ("flip", "flip one bit", "cut off", "cut out", "repeat", "flip in header", "zeros")


class Mutation(NamedTuple):
    name: str
    way: str
    original: bytes
    content: bytes


def sound_files():
    """Return small sound files of every format, and of the variants with code of their own; name -> bytes."""
    grey = np.ascontiguousarray(io_scenes.scene()[0][:90, :110])
    colour = np.dstack([grey, grey[::-1], grey[:, ::-1]])
    wide = grey.astype(np.uint16) * 257
    picture = Image.fromarray(colour)
    files = {}
    for name, image, options in (
        ("png grey", Image.fromarray(grey), {"format": "PNG"}),
        ("png palette", picture.quantize(), {"format": "PNG"}),
        ("png alpha", picture.convert("RGBA"), {"format": "PNG"}),
        ("jpeg grey", Image.fromarray(grey), {"format": "JPEG"}),
        ("jpeg progressive", picture, {"format": "JPEG", "progressive": True}),
        ("jpeg restart", picture, {"format": "JPEG", "restart_marker_rows": 1}),
        ("jpeg cmyk", io_scenes.cmyk(grey), {"format": "JPEG", "exif": io_scenes.exif(6)}),
        ("bmp colour", picture, {"format": "BMP"}),
        ("bmp palette", picture.quantize(), {"format": "BMP"}),
        ("gif", picture, {"format": "GIF"}),
        ("gif frames", picture, {"format": "GIF", "save_all": True, "append_images": [picture.rotate(90)]}),
        ("webp lossy", picture, {"format": "WEBP"}),
        ("webp lossless", picture.convert("RGBA"), {"format": "WEBP", "lossless": True}),
        ("jpeg 2000", picture, {"format": "JPEG2000"}),
    ):
        files[name] = io_scenes.bytes_of(image.save, **options)
    files["png 16 bit"] = imagecodecs.png_encode(wide)
    for name, array, options in (
        ("tiff", grey, {}),
        ("tiff deflate", grey, {"compression": "zlib", "predictor": True, "rowsperstrip": 20}),
        ("tiff tiles", colour, {"tile": (32, 32), "compression": "lzw", "photometric": "rgb"}),
        ("tiff planar", np.moveaxis(colour, -1, 0), {"photometric": "rgb", "planarconfig": "separate"}),
        ("tiff float", grey.astype(np.float32), {"compression": "zstd", "predictor": 3}),
        ("tiff big-endian", wide, {"byteorder": ">", "extratags": io_scenes.GEO_TAGS}),
        ("tiff pages", np.stack([grey, grey]), {}),
        ("tiff imagej", np.stack([grey, grey]), {"imagej": True, "metadata": {"axes": "CYX"}}),
        ("tiff ome", np.stack([grey, grey]), {"ome": True, "metadata": {"axes": "CYX"}}),
        ("tiff jpeg", colour, {"compression": "jpeg", "photometric": "rgb"}),
        ("tiff big", grey, {"bigtiff": True, "rowsperstrip": 16}),
        ("tiff bits", grey > 100, {"bitspersample": 1}),
    ):
        options = {"photometric": "minisblack", "metadata": None, **options}
        files[name] = io_scenes.bytes_of(tifffile.imwrite, array, **options)
    for name, array in (("npy", grey), ("npy float", grey / 3), ("npy fortran", np.asfortranarray(wide))):
        files[name] = io_scenes.bytes_of(np.save, array)
    return files


def mutations(n_files, seed):
    """Yield so many mutated files, the same for the same seed."""
    rng = np.random.default_rng(seed)
    sound = sound_files()
    names = list(sound)
    for _ in range(n_files):
        name, way = names[rng.integers(len(names))], WAYS[rng.integers(len(WAYS))]
        yield Mutation(name, way, sound[name], _mutate(sound[name], way, rng))


def _mutate(original, way, rng):
    content = bytearray(original)
    first, second = sorted(rng.integers(len(content), size=2).tolist())
    if way == "flip":
        for place in rng.integers(len(content), size=rng.integers(1, 20)):
            content[place] = rng.integers(256)
    elif way == "flip one bit":
        content[first] ^= 1 << int(rng.integers(8))
    elif way == "cut off":
        del content[first:]
    elif way == "cut out":
        del content[first:second]
    elif way == "repeat":
        content[second:second] = content[first:second]
    elif way == "flip in header":
        for place in rng.integers(min(200, len(content)), size=rng.integers(1, 6)):
            content[place] = rng.integers(256)
    else:
        content[first : first + 200] = bytes(len(content[first : first + 200]))
    return bytes(content)
