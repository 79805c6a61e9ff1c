"""Sphinx extensions of the site: pages made from the program, links, and small fixes."""
