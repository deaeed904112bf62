"""From an image to bins: planes, filter responses, textons, and how another image is encoded alike."""
