"""What can go wrong with an image file."""


class ImageReadError(OSError):
    """A file that is missing, broken, or not an image; the message names the file and the reason."""


class ImageTooLargeError(ValueError):
    """An image larger than the limit according to its header; nothing was decoded."""


class UnsuitableImageError(ValueError):
    """A valid file that does not hold a single real image: wrong shape or type, or several pages."""


class MalformedFileError(OSError):
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
