"""What can go wrong with an image file."""


class ImageReadError(OSError):
    """A file that is missing, broken, or no image; the message names the file and the reason."""


class ImageTooLargeError(ValueError):
    """An image that its header announces to be larger than the limit; nothing was decoded."""


class UnsuitableImageError(ValueError):
    """A sound file whose content is no single real image as it stands: shape, type, or several pages."""


class MalformedFileError(Exception):
    """The reason, in words, why a file cannot be read; the reader adds the name of the file."""
