"""The run folder: this package alone knows its files."""
