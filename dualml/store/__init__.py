"""The run folder: the one room that knows its files."""
