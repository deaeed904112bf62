"""What can go wrong with an image file."""


class ImageReadError(OSError):
    """A file that is missing, broken, or no image; the message names the file and the reason."""


class ImageTooLargeError(ValueError):
    """An image that its header announces to be larger than the limit; nothing was decoded."""


class UnsuitableImageError(ValueError):
    """A sound file whose content is no single real image as it stands: shape, type, or several pages."""


class MalformedFileError(Exception):
    """The reason, in words, why a file cannot be read; the reader adds the name of the file."""


def reason_of(error: Exception) -> str:
    """One line that says why a file cannot be read."""
    if isinstance(error, MalformedFileError):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    if "truncated" in str(error):
        return "file is truncated"
    said = " ".join(str(error).split())
    return f"file is corrupt ({said[:100] or type(error).__name__})"
