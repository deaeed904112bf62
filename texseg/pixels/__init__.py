"""From clusters to pixels: labels, learned borders, and the composites used to learn them."""
