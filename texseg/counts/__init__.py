"""From bins to counts: the seam, the sites of a grid, and its levels."""
