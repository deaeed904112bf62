"""The family of co-occurrence models, one model a file, the equations at the top of each."""
