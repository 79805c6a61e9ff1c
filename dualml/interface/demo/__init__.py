"""Recorded runs and a recorded comparison, for ``dualml demo``.

``recordings/`` holds them; ``docs/gallery.py`` makes them anew.
"""
