"""Why two backends disagree: the update that parts them is made again, and looked at closely.

`replay` makes single updates from one common state, on the two backends and the referee, and keeps
everything; `localise` says where, and on whose side, something leaves the rule; `causes` holds what
could be behind it, as altered referees whose numbers are compared with the recorded ones; `find`
does all of it for a run folder; `paragraph` says it in words.
"""
