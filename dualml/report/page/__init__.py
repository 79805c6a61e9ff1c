"""Renderers: a tree of blocks as HTML and as Markdown, and tables for the terminal."""
