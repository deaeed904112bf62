"""From an image to bins: planes, filter responses, textons, and the same encoding for other images."""
