"""From counts to clusters: the driver, its steps, assignments, moves and starts, and the number."""
