"""Pictures that libraries decode: PNG, JPEG, WebP, JPEG 2000, BMP and GIF.

Sizes are read from the headers before anything of that size is allocated, and a file that is far too small
for the picture that it announces is refused. Pillow's plugins are used directly: `PIL.Image.open` would
consult the process-wide limit ``MAX_IMAGE_PIXELS``, which belongs to the user, not to this library.
"""

import re
import struct
import warnings
import zlib
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from texseg.io.files import INVALID, WRONG_SIZE, ImageTooLargeError, MalformedFileError, UnsuitableImageError
from texseg.io.header import Decoded, Header, Stored, Window

_SMALL = 2**22  # pixels, of a picture that may be announced by any file
_SIDE_DATA_BYTES = 2**26  # metadata, previews and colour profiles that may come on top of the pixels
_ORIENTATION_TAG = 0x0112


def cmyk_to_rgb(light: NDArray) -> NDArray:
    """RGB (H, W, 3) from CMYK (H, W, 4) in which the full value means no ink, of the same integer type."""
    full = np.iinfo(light.dtype).max
    product = light[..., :3].astype(np.float32) * (light[..., 3:].astype(np.float32) / full)
    return np.rint(product).astype(light.dtype)


class Picture(Stored):
    """A picture in memory, which is decoded whole; the frames of an animation are pages."""

    format, codec, pixels_per_byte = "", "", 2**16
    broken = ""  # why the picture cannot be decoded

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.header = self._read_header()

    @abstractmethod
    def _read_header(self) -> Header: ...

    def _decode(self, page: int) -> NDArray:
        """Decode a page: grey or colours, and alpha as the last channel if the header announces it."""
        import imagecodecs

        if self.broken:
            raise MalformedFileError(self.broken)
        return getattr(imagecodecs, f"{self.codec}_decode")(self.data)

    def _describe(
        self, size: tuple[int, int], n_channels: int, exif: bytes | None = None, **more: Any
    ) -> Header:
        """Make a header of a picture of this height and width; `more` may hold the number of frames."""
        from PIL.Image import Exif

        if min(size) < 1 or n_channels < 1:
            raise MalformedFileError(INVALID.format(f"{self.format} header"))
        found, frames = Exif(), more.pop("n_frames", 1)
        with suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about all else in it
            found.load(exif or b"")
        upright: Any = found.get(_ORIENTATION_TAG)
        shape = (*[frames] * (frames > 1), *size, *[n_channels] * (n_channels > 1))
        axes = "P" * (frames > 1) + "YX" + "C" * (n_channels > 1)
        dtype = np.dtype(more.pop("dtype", np.uint8))
        orientation = int(upright) if upright in range(1, 9) else 1
        return Header(self.format, shape, axes, dtype, orientation=orientation, **more)

    def check(self) -> None:
        """Refuse a picture that the file cannot hold."""
        height, width, n_bytes = self.header.height, self.header.width, len(self.data)
        if self._needed_bytes(height, width) > n_bytes:
            cannot = f"{n_bytes} bytes cannot hold {width} x {height} pixels"
            raise MalformedFileError(f"file is truncated or corrupt: {cannot}")

    def _needed_bytes(self, height: int, width: int) -> float:
        return (height * width - _SMALL) / self.pixels_per_byte

    def only_whole(self, level: int) -> str:
        """Why the file cannot be read in parts."""
        return f"{self.format} files can only be read whole; convert it to a tiled TIFF"

    def read(self, window: Window, axes: str, page: int, level: int) -> Decoded:
        """Read a window of a page; pixels of alpha 0 are not opaque."""
        kept = self.decoded
        if kept is None or kept[0] != page:
            kept = page, self._decode(page)
            if kept[1].shape[:2] != (self.header.height, self.header.width):
                raise MalformedFileError(WRONG_SIZE)
            self.decoded = kept
        pixels, n_channels = kept[1][window], self.header.n_channels
        if not self.header.has_alpha or pixels.shape[2:] != (n_channels + 1,):
            return Decoded(pixels)
        return Decoded(pixels[..., 0] if n_channels == 1 else pixels[..., :-1], pixels[..., -1] != 0)


def _check_strict(format: str) -> None:
    """Refuse to let Pillow decode while the process tells it to accept truncated files."""
    from PIL import ImageFile

    if ImageFile.LOAD_TRUNCATED_IMAGES:
        result = f"so that a {format} file might be returned in part; set it to False"
        raise MalformedFileError(f"PIL.ImageFile.LOAD_TRUNCATED_IMAGES is set, {result}")


_PNG_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type
_PNG_PALETTE, _PNG_WITH_ALPHA = 3, (4, 6)
_DEFLATE_RATIO = 1032  # at most: 258 bytes from two bits
_PNG_PICTURE = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")


class Png(Picture):
    """PNG without its texts, colour profile and further frames, which cannot then slow a decoder down."""

    format, codec = "PNG", "png"

    def _read_header(self) -> Header:
        chunks: dict[bytes, bytes] = {}
        kept, position, kind = [self.data[:8]], 8, b""
        n_left = 4096 + len(self.data) // 512  # so many, or of some size
        while position + 8 <= len(self.data) and kind != b"IEND":
            n_left -= 1
            if not n_left:
                raise MalformedFileError("PNG of chunks without content, file is corrupt")
            length, kind = struct.unpack_from(">I4s", self.data, position)
            chunk = self.data[position : position + 12 + length]
            position += len(chunk)
            is_cut = len(chunk) < 12 + length
            if kind in _PNG_PICTURE and not (is_cut and kind == b"IEND"):
                kept.append(chunk)
                if is_cut:
                    self.broken = self.broken or "file is truncated"
                elif zlib.crc32(chunk[4:-4]) != int.from_bytes(chunk[-4:], "big"):
                    wrong = f"checksum of the {kind.decode()} chunk is wrong, file is corrupt"
                    self.broken = self.broken or wrong
            chunks.setdefault(kind, chunk[8:-4])
        width, height, depth, self._colour = struct.unpack_from(">IIBB", chunks.get(b"IHDR", b""))
        self._bits, self.data = depth * _PNG_SAMPLES[self._colour], b"".join(kept)
        notes = ["the first picture of the animation is read"] * (b"acTL" in chunks)
        notes += ["the end mark of the PNG file is missing"] * (not self.data.endswith(b"IEND\xaeB`\x82"))
        n_channels = 1 if _PNG_SAMPLES[self._colour] < 3 and self._colour != _PNG_PALETTE else 3
        has_alpha = self._colour in _PNG_WITH_ALPHA or b"tRNS" in chunks
        more: Any = {"dtype": "u2" if depth == 16 else "u1", "has_alpha": has_alpha, "notes": tuple(notes)}
        return self._describe((height, width), n_channels, chunks.get(b"eXIf"), **more)

    def _needed_bytes(self, height: int, width: int) -> float:
        return height * (width * self._bits // 8 + 1) / _DEFLATE_RATIO

    def _decode(self, page: int) -> NDArray:
        import imagecodecs

        try:
            return super()._decode(page)
        except imagecodecs.PngError as error:
            raise MalformedFileError("file is truncated or corrupt") from error

    def decode_indices(self) -> NDArray | None:
        """Palette indices (H, W) of a palette image, None for other colour types."""
        from PIL.PngImagePlugin import PngImageFile

        if self._colour != _PNG_PALETTE:
            return None
        _check_strict("PNG")
        if self.broken:
            raise MalformedFileError(self.broken)
        with PngImageFile(BytesIO(self.data)) as image:
            return np.asarray(image)


_START_OF_SCAN, _END_OF_IMAGE, _EXIF, _ADOBE = 0xDA, 0xD9, 0xE1, 0xEE
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE, _LAST_HUFFMAN = 0xC2, 0xC8
_MARKER = re.compile(rb"\xff([\x02-\xcf\xd9-\xfe])")  # those that stand alone (0x01, restart, start) left out
_MARKER_IN_SCAN = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")  # neither a stuffed 0xFF nor a restart mark
_MOST_SEGMENTS = 4096  # a colour profile has up to 255
_UNSURE = "is not read, since missing data would not be noticed; save it"
_MOST_SCANS = 24  # of a picture of some size; encoders that search for the best division write up to 16


def _segments(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield marker and content of the segments of a JPEG up to the end mark, or to where it is truncated."""
    position = 2
    for _ in range(_MOST_SEGMENTS):
        found = _MARKER.search(data, position)
        if found is None:
            return
        marker, start = found[1][0], found.end()
        if marker == _END_OF_IMAGE:
            yield marker, data[:start]
            return
        position = start + max(2, int.from_bytes(data[start : start + 2], "big"))
        if position > len(data):
            return
        yield marker, data[start + 2 : position]
        if marker == _START_OF_SCAN:
            following = _MARKER_IN_SCAN.search(data, position)
            position = len(data) if following is None else following.start()
    raise MalformedFileError("more marker segments than a picture has, file is corrupt")


class Jpeg(Picture):
    """JPEG; a picture whose data end too early is refused, not padded with grey."""

    format, pixels_per_byte = "JPEG", 8 * 64  # each block takes one bit at least

    def _read_header(self) -> Header:
        segments = list(_segments(self.data))
        frames = [segment for segment in segments if segment[0] in _FRAMES]
        self._scans = [content for marker, content in segments if marker == _START_OF_SCAN]
        self._has_adobe = any(marker == _ADOBE for marker, _ in segments)
        exif = [content for marker, content in segments if marker == _EXIF and content[:5] == b"Exif\0"]
        if not frames:
            raise MalformedFileError("file is truncated")
        self._marker, frame = frames[0]
        self._precision, height, width, self.n_components = struct.unpack_from(">BHHB", frame + bytes(6))
        if len(frames) > 1 or self.n_components not in (1, 3, 4) or len(frame) < 6 + 3 * self.n_components:
            raise MalformedFileError(INVALID.format("JPEG header"))
        self._components = frame[6 : 6 + 3 * self.n_components : 3]
        whole = dict(segments).get(_END_OF_IMAGE)
        notes = () if whole else ("the end mark of the JPEG file is missing",)
        self.data = whole or self.data + b"\xff\xd9"
        n_channels = 1 if self.n_components == 1 else 3
        return self._describe((height, width), n_channels, exif=(exif or [b""])[0], notes=notes)

    def check(self) -> None:
        """Refuse many passes over a large picture, and one that lacks a component or a coefficient."""
        super().check()
        if self._marker > _LAST_HUFFMAN:  # decoders take missing data for zeros, as the standard says
            raise MalformedFileError(f"JPEG with arithmetic coding {_UNSURE} with Huffman coding or as PNG")
        n_scans = len(self._scans)
        if n_scans > _MOST_SCANS and n_scans * self.header.height * self.header.width > _MOST_SCANS * 2**20:
            raise MalformedFileError(f"JPEG of {n_scans} scans, more than a picture of its size has")
        missing = {(c, k): 14 for c in self._components for k in range(64)}  # bits that are not known yet
        for scan in self._scans:
            n = scan[0] if scan else 0
            first, last, bits = 0, 63, 0
            if self._marker == _PROGRESSIVE and len(scan) >= 4 + 2 * n:
                first, last, bits = scan[1 + 2 * n : 4 + 2 * n]
            known = range(first, min(last, 63) + 1)
            missing |= {(c, k): bits & 15 for c in scan[1 : 1 + 2 * n : 2] for k in known}
        if any(missing.values()):
            raise MalformedFileError("file is truncated, part of the picture is missing")

    def _decode(self, page: int) -> NDArray:
        """Decode strictly: every warning of the decoder is an error. CMYK becomes RGB."""
        import simplejpeg

        if self._precision != 8 or self._marker > _PROGRESSIVE:
            kind = f"{self._precision} bits or without losses"
            raise MalformedFileError(f"JPEG of {kind} {_UNSURE} as PNG or TIFF")
        space = {1: "GRAY", 3: "RGB", 4: "CMYK"}[self.n_components]
        try:
            pixels = simplejpeg.decode_jpeg(self.data, colorspace=space)
        except ValueError as error:
            if "extraneous bytes before marker 0xd9" not in str(error):
                missing = "file is truncated or corrupt, part of the picture is missing"
                raise MalformedFileError(f"{missing} ({error})") from error
            # some cameras write fill bytes before the end mark
            data = self.data[:-2].rstrip(self.data[-3:-2])
            data += b"\0\xff\xd9" if data.endswith(b"\xff") else b"\xff\xd9"
            pixels = simplejpeg.decode_jpeg(data, colorspace=space)
        if self.n_components == 4:
            return cmyk_to_rgb(pixels if self._has_adobe else 255 - pixels)
        return pixels[..., 0] if self.n_components == 1 else pixels


class Webp(Picture):
    """WebP of one picture."""

    format, codec = "WebP", "webp"

    def _read_header(self) -> Header:
        data, position = self.data, 12
        end = 8 + int.from_bytes(data[4:8], "little")
        chunks: dict[bytes, bytes] = {}
        while position + 8 <= min(end, len(data)):
            kind, length = struct.unpack_from("<4sI", data, position)
            chunks.setdefault(kind, data[position + 8 : position + 8 + length] if kind == b"EXIF" else b"")
            position += 8 + length + length % 2
        if b"ANMF" in chunks:
            raise UnsuitableImageError("animations in WebP are not read; save the frame you mean by itself")
        self.broken = "file is truncated" * (end > len(data) or position > len(data) + 1)
        kind, content = data[12:16], data[20:30]
        if kind == b"VP8X" and len(content) == 10:
            width, height = (int.from_bytes(content[i : i + 3], "little") + 1 for i in (4, 7))
            has_alpha = bool(content[0] & 0x10)
        elif kind == b"VP8L" and len(content) >= 5 and content[0] == 0x2F:
            bits = int.from_bytes(content[1:5], "little")
            width, height, has_alpha = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, bool(bits >> 28 & 1)
        elif kind == b"VP8 " and content[3:6] == b"\x9d\x01\x2a" and len(content) == 10:
            width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", content, 6))
            has_alpha = False
        else:
            raise MalformedFileError(INVALID.format("WebP header"))
        return self._describe((height, width), 3, has_alpha=has_alpha, exif=chunks.get(b"EXIF"))


_CODESTREAM = b"\xff\x4f\xff\x51"
_TABLE_BYTES = 100e6  # bytes that a decoder may take for its tables besides the pixels
_TILE_BYTES, _COMPONENT_BYTES = 7000, 1200  # of OpenJPEG 2.5, for each
_LEAST_PRECINCT = 4  # sides of 16 pixels; OpenJPEG takes 400 bytes for each precinct
_CODING_STYLES = {0x52: (0, 10), 0x53: (1, 7)}  # of all components, or one: places of its flags and precincts
_START_OF_TILE = 0x90


class Jpeg2000(Picture):
    """JPEG 2000 files (.jp2) and bare codestreams (.j2k)."""

    format, codec = "JPEG 2000", "jpeg2k"

    def _read_header(self) -> Header:
        data = self.data
        start = data.find(_CODESTREAM)
        if start < 0:
            raise MalformedFileError("file is truncated")
        if data.count(b"jp2c" + _CODESTREAM) > 1:
            raise MalformedFileError("JPEG 2000 file with two images, save the one you mean by itself")
        boxes, self._codestream = data[:start], data[start : start + 2**16]
        x1, y1, x0, y0 = struct.unpack_from(">IIII", data, start + 8)
        n_channels, depth = struct.unpack_from(">HB", data, start + 40)
        announced = boxes.find(b"ihdr")
        if announced >= 0 and boxes[announced + 4 : announced + 12] != struct.pack(">II", y1 - y0, x1 - x0):
            raise MalformedFileError("JPEG 2000 headers contradict each other, file is corrupt")
        palette, definition = boxes.find(b"pclr"), boxes.find(b"cdef")
        if 0 <= palette < start - 7:
            n_channels = boxes[palette + 6]
        entries = boxes[definition + 6 :] if definition >= 0 else b""
        n_entries = int.from_bytes(boxes[definition + 4 : definition + 6], "big") if entries else 0
        kinds = [struct.unpack_from(">HH", entries, 6 * i) for i in range(min(n_entries, len(entries) // 6))]
        has_alpha = dict(kinds).get(n_channels - 1) in (1, 2)  # opacity, premultiplied opacity
        bits = next((b for b in (8, 16, 32) if (depth & 0x7F) < b), 64)
        dtype = f"{'int' if depth & 0x80 else 'uint'}{bits}"
        return self._describe((y1 - y0, x1 - x0), n_channels - has_alpha, dtype=dtype, has_alpha=has_alpha)

    def check(self) -> None:
        """Refuse tiles and precincts so small that their tables would fill the memory."""
        super().check()
        x1, y1, x0, y0, tile_x, tile_y = struct.unpack_from(">IIIIII", self._codestream, 8)
        n_components = struct.unpack_from(">H", self._codestream, 40)[0]
        area = (x1 - x0) * (y1 - y0)
        tables = -(-x1 // tile_x) * -(-y1 // tile_y) * (_TILE_BYTES + _COMPONENT_BYTES * n_components)
        if tables > _TABLE_BYTES + 4 * area or min(self._precinct_sides(), default=15) < _LEAST_PRECINCT:
            raise MalformedFileError("JPEG 2000 of tiles or precincts without content, file is corrupt")

    def _precinct_sides(self) -> Iterator[int]:
        """Yield the sides of precincts that the main header declares, as powers of 2."""
        for marker, content in _segments(self._codestream):
            if marker == _START_OF_TILE:
                return
            if marker in _CODING_STYLES:
                style, sizes = _CODING_STYLES[marker]
                for size in content[sizes:] if len(content) > style and content[style] & 1 else b"":
                    yield from (size & 15, size >> 4)


class Bmp(Picture):
    """BMP, decoded by Pillow."""

    format = "BMP"
    n_frames = 1
    notes: tuple[str, ...] = ()

    def _open_image(self) -> Any:
        from PIL.BmpImagePlugin import BmpImageFile

        return BmpImageFile(BytesIO(self.data))

    def _read_header(self) -> Header:
        _check_strict(self.format)
        self._image = image = self._open_image()
        has_alpha = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
        colours = image.mode if image.mode in ("L", "1") else "RGB"
        self._mode = colours + "A" * has_alpha
        about: Any = {"n_frames": self.n_frames, "has_alpha": has_alpha, "notes": self.notes}
        about["dtype"] = bool if colours == "1" else np.uint8
        return self._describe(image.size[::-1], 3 if colours == "RGB" else 1, **about)

    def _decode(self, page: int) -> NDArray:
        if self.header.n_pages > 1:
            self._image.seek(page)
        return np.asarray(self._image.convert(self._mode))

    def decode_indices(self) -> NDArray | None:
        """Palette indices (H, W) of a single-frame palette image."""
        return np.asarray(self._image) if self._image.mode == "P" and self.header.n_pages == 1 else None


_SMALL_SCREEN, _EMPTY_SCREEN = 2**20, 64  # pixels, beyond which so many times the largest frame


class Gif(Bmp):
    """GIF, decoded by Pillow, which would take much longer to count the frames."""

    format = "GIF"

    def _open_image(self) -> Any:
        from PIL.GifImagePlugin import GifImageFile

        n_frames, largest = self._count_frames()
        self.n_frames = max(1, n_frames)
        image = GifImageFile(BytesIO(self.data))
        if n_frames and image.width * image.height > _SMALL_SCREEN + _EMPTY_SCREEN * largest:
            size = f"{image.width} x {image.height} pixels"
            raise MalformedFileError(f"GIF of {size} whose largest frame has {largest}, file is corrupt")
        return image

    def _count_frames(self) -> tuple[int, int]:
        """Count the frames, and the pixels of the largest."""
        data = self.data
        position = 13 + _table_bytes(data[10:11])
        n_frames = largest = n_empty = 0
        while data[position : position + 1] in (b"\x21", b"\x2c"):
            if data[position] == 0x2C and position + 10 < len(data):
                n_frames += 1
                width, height = struct.unpack_from("<HH", data, position + 5)
                largest = max(largest, width * height)
                position += 9 + _table_bytes(data[position + 9 : position + 10])
            position += 2
            n_empty += data[position : position + 1] == b"\0"
            if n_empty > 4096 + len(data) // 64:
                raise MalformedFileError("GIF of blocks without content, file is corrupt")
            while position < len(data) and data[position]:
                position += 1 + data[position]
            position += 1
        if position > len(data):
            raise MalformedFileError("file is truncated")
        if position == len(data):
            self.notes = ("the end mark of the GIF file is missing",)
        return n_frames, largest


def _table_bytes(flags: bytes) -> int:
    return 3 << (flags[0] & 7) + 1 if flags and flags[0] & 0x80 else 0


PICTURES: dict[str, type[Picture]] = {kind.format: kind for kind in (Png, Jpeg, Webp, Jpeg2000, Bmp, Gif)}


def open_picture(format: str, stream: Any, size: int) -> Picture:
    """Read a picture file into memory, unless it is far larger than the picture that it announces."""
    data = stream.read(min(size, _SIDE_DATA_BYTES))
    picture = PICTURES[format](data)
    if format == "WebP":  # a few bytes may stand for pixels without end
        picture.check()
    if size <= len(data):
        return picture
    header = picture.header
    n_values = header.height * header.width * max(4, header.n_channels) * header.n_pages
    most = _SIDE_DATA_BYTES + 2 * n_values * header.dtype.itemsize
    if size > most and format not in ("PNG", "BMP"):
        pixels = f"{header.width} x {header.height} pixels"
        raise ImageTooLargeError(f"file of {size / 1e9:.1f} GB for {pixels}, file is corrupt")
    return PICTURES[format](data + stream.read(min(size, most) - len(data)))
