"""From counts to clusters: the driver, its steps, assignments and moves, and the number of segments."""
