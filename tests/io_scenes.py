"""A small scene of four textures and the files that the input and output tests make of it."""

import functools
import io
from pathlib import Path

import imagecodecs
import numpy as np
import tifffile
from PIL import Image

from texseg.io.read import MAX_PIXELS, open_pages, open_source, shown
from texseg.io.read import Image as ReadImage

SHAPE = (160, 192)  # not square: a transposition shows
GEO_TAGS = [
    (33550, 12, 3, (0.5, 0.5, 0.0), True),
    (33922, 12, 6, (0.0, 0.0, 0.0, 500000.0, 5200000.0, 0.0), True),
    (34735, 3, 16, (1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, 32633), True),
]
WORLD_FILE = "0.5\n0\n0\n-0.5\n500000.25\n5199999.75\n"


@functools.cache
def scene():
    """Return grey values (uint8) and truth 1..4 of four gratings with equal mean and contrast."""
    rng = np.random.default_rng(7)
    rows, columns = np.mgrid[: SHAPE[0], : SHAPE[1]]
    waves = [
        np.sin(2 * np.pi * (columns * np.cos(angle) + rows * np.sin(angle)) / wavelength)
        for angle, wavelength in ((0.0, 3.0), (np.pi / 2, 6.0), (np.pi / 4, 6.0), (-np.pi / 4, 11.0))
    ]
    truth = 1 + (rows > 75 + 10 * np.sin(columns / 30)).astype(int) + 2 * (columns > 100 + rows / 8)
    grey = np.choose(truth - 1, waves) + 0.4 * rng.standard_normal(SHAPE)
    grey.setflags(write=False)
    pixels = np.clip(128 + 45 * grey, 0, 255).astype(np.uint8)
    return pixels, truth.astype(np.int32)


def read_pages(path, **options):
    with open_pages(path, **{"max_pixels": MAX_PIXELS, **options}) as sources:
        return [source.read() for source in sources]


def image_of(pixels, size=None):
    """Return an array as if it had been read."""
    return ReadImage(pixels, None, None, None, None, None, (), size)


def read_mask(path):
    with open_source(path, max_pixels=MAX_PIXELS) as source:
        return shown(source, None, np.any)


def hole():
    """Return the mask of a block without data, 70 x 70 pixels."""
    mask = np.zeros(SHAPE, bool)
    mask[40:110, 60:130] = True
    return mask


def write(path, array, **save):
    """Save an array with Pillow, the format by suffix unless `format` is given."""
    image = array if isinstance(array, Image.Image) else Image.fromarray(array)
    image.save(path, **save)
    return path


def tiff(path, array, **options):
    tifffile.imwrite(path, array, **{"photometric": "minisblack", "metadata": None, **options})
    return path


def png16(path, array):
    Path(path).write_bytes(imagecodecs.png_encode(array))
    return path


def shuffled_palette(pixels):
    """Return a palette image whose indices have nothing to do with its grey values."""
    order = np.random.default_rng(3).permutation(256)
    image = Image.fromarray(np.argsort(order)[pixels].astype(np.uint8))
    image.putpalette(np.repeat(order, 3).astype(np.uint8).tobytes())
    return image


def cmyk(pixels):
    return Image.merge("CMYK", [Image.fromarray(255 - pixels)] * 3 + [Image.new("L", pixels.shape[::-1], 0)])


def exif(orientation):
    block = Image.Exif()
    block[0x0112] = orientation
    return block.tobytes()


def stored_with_orientation(pixels, orientation):
    """Return the array that, turned as the EXIF orientation says, gives `pixels`."""
    stored = pixels
    if orientation in (2, 3, 6, 7):
        stored = stored[:, ::-1]
    if orientation in (3, 4, 7, 8):
        stored = stored[::-1]
    return np.ascontiguousarray(stored.swapaxes(0, 1) if orientation >= 5 else stored)


def bytes_of(save, *args, **options):
    """Content of the file that `save` would write."""
    buffer = io.BytesIO()
    save(buffer, *args, **options)
    return buffer.getvalue()


def _rgb(pixels):
    return np.repeat(pixels[..., None], 3, axis=-1)


def _with_alpha(pixels, full):
    return np.concatenate([_rgb(pixels), np.full((*pixels.shape, 1), full, pixels.dtype)], axis=-1)


def exact_encodings(folder):
    """Write the scene in many encodings whose values are an exact affine map of it; name -> path."""
    p = scene()[0]
    wide = p.astype(np.uint16)
    rgb = _rgb(p)
    files = {
        "u8.png": lambda f: write(f, p),
        "named_wrongly.png": lambda f: write(f, p, format="BMP"),
        "no_extension": lambda f: write(f, p, format="PNG"),
        "UPPER.PNG": lambda f: write(f, p, format="PNG"),
        "gray16.png": lambda f: png16(f, wide * 257),
        "rgb.png": lambda f: write(f, rgb),
        "rgb16.png": lambda f: png16(f, _rgb(wide * 257)),
        "rgba_opaque.png": lambda f: write(f, _with_alpha(p, 255)),
        "rgba16_opaque.png": lambda f: png16(f, _with_alpha(wide * 257, 65535)),
        "la_opaque.png": lambda f: write(f, np.stack([p, np.full_like(p, 255)], -1)),
        "palette_shuffled.png": lambda f: write(f, shuffled_palette(p)),
        "lossless.webp": lambda f: write(f, rgb, lossless=True),
        "gray.bmp": lambda f: write(f, p),
        "rgb.bmp": lambda f: write(f, rgb),
        "gray.gif": lambda f: write(f, p),
        "lossless.jp2": lambda f: write(f, p),
        "gray16.j2k": lambda f: Path(f).write_bytes(imagecodecs.jpeg2k_encode(wide * 257, level=0)),
        "u16_full.tif": lambda f: tiff(f, wide * 257),
        "u16_12bit.tif": lambda f: tiff(f, wide * 16),
        "u16_offset_narrow.tif": lambda f: tiff(f, wide * 15 + 33000),
        "u16_bigendian.tif": lambda f: tiff(f, wide * 257, byteorder=">"),
        "u32.tif": lambda f: tiff(f, p.astype(np.uint32) * 16777216),
        "u64.tif": lambda f: tiff(f, p.astype(np.uint64) * 2**50),
        "i8.tif": lambda f: tiff(f, (p.astype(np.int16) - 128).astype(np.int8)),
        "i16_negative.tif": lambda f: tiff(f, p.astype(np.int16) * 8 - 1024),
        "i32.tif": lambda f: tiff(f, p.astype(np.int32) * 1000 - 9),
        "f16.tif": lambda f: tiff(f, p.astype(np.float16)),
        "f32_unscaled.tif": lambda f: tiff(f, p.astype(np.float32) * 4 - 700),
        "f64_tiny_range.tif": lambda f: tiff(f, p * 2.0**-40),
        "deflate_predictor.tif": lambda f: tiff(f, p, compression="zlib", predictor=True),
        "lzw_strips.tif": lambda f: tiff(f, p, compression="lzw", rowsperstrip=7),
        "zstd_float_predictor.tif": lambda f: tiff(f, p.astype(np.float32), compression="zstd", predictor=3),
        "tiled.tif": lambda f: tiff(f, p, tile=(64, 48)),
        "big.tif": lambda f: tiff(f, p, bigtiff=True),
        "planar_rgb.tif": lambda f: tiff(
            f, np.moveaxis(rgb, -1, 0), photometric="rgb", planarconfig="separate"
        ),
        "palette.tif": lambda f: tiff(
            f,
            p,
            photometric="palette",
            colormap=np.repeat(np.arange(256)[None] * 257, 3, 0).astype(np.uint16),
        ),
        "white_is_zero.tif": lambda f: tiff(f, 255 - p, photometric="miniswhite"),
        "imagej.tif": lambda f: tifffile.imwrite(f, p, imagej=True),
        "ome.tif": lambda f: tifffile.imwrite(f, p, ome=True),
        "float64.npy": lambda f: np.save(f, p.astype(float)),
        "fortran_order.npy": lambda f: np.save(f, np.asfortranarray(wide)),
        "bigendian.npy": lambda f: np.save(f, p.astype(">i4")),
    }
    for orientation in range(2, 9):
        files[f"oriented_{orientation}.png"] = lambda f, o=orientation: write(
            f, stored_with_orientation(p, o), exif=exif(o)
        )
    return _made(folder, files)


def lossy_encodings(folder):
    """Write the scene in encodings that change its values a little; name -> path."""
    p = scene()[0]
    hot = p.astype(np.uint16) * 8 + 1000
    hot[5, 7] = hot[100, 150] = 65535
    files = {
        "gray.jpg": lambda f: write(f, p, quality=95),
        "progressive.jpg": lambda f: write(f, _rgb(p), quality=95, progressive=True),
        "cmyk.jpg": lambda f: write(f, cmyk(p), quality=95),
        "jpeg_named.png": lambda f: write(f, p, quality=95, format="JPEG"),
        "exif_rot6.jpg": lambda f: write(f, stored_with_orientation(p, 6), quality=95, exif=exif(6)),
        "lossy.webp": lambda f: write(f, _rgb(p), quality=95),
        "hot_pixels.tif": lambda f: tiff(f, hot),
    }
    return _made(folder, files)


def _made(folder, files):
    for name, make in files.items():
        make(folder / name)
    return {name: folder / name for name in files}
