"""From clusters to pixels: labels, learned borders, and the composites they are learned from."""
