"""What makes the site: pages of the program, links, and small extensions of Sphinx."""
