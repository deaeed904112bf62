"""The default method, from scenes to labels."""
