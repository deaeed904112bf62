"""Images and label images in files."""
