"""Accuracy and speed, measured; see README.md."""
