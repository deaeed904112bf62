"""From bins to counts: the count matrix interface, the sites of a grid, and its levels."""
