"""Finder of the cause of a difference between two backends, by replaying the update at which they
diverge.

`replays` runs single updates from one common state on the two backends and the reference, and
records everything; `localise` finds where, and on which backend, a tensor first deviates; `causes`
holds hypotheses, as modified references whose numbers are compared with the recorded ones; `find`
does all of this for a run folder; `paragraph` describes the result.
"""
