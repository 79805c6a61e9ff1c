"""Changes of single lines of an update rule, made from the rule's own source.

`program` reads the rule, `mutations` changes it, and `search` keeps the changes that compute what
was recorded. A rule of one's own is changed like any other: nothing here knows its formula.
"""
