"""A tree of blocks as HTML and Markdown, its tables for the terminal: one file each."""
