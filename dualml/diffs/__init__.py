"""The catalogue of semantic differences: where PyTorch and MindSpore mean something else.

An entry is data (``entries/TOPIC.toml``) and, for each framework, a probe of the same name in
``dualml_torch/diffs/TOPIC.py`` and ``dualml_ms/diffs/TOPIC.py``: ``gelu(…)`` does what a user would
write, ``gelu_equal(…)`` what makes the two agree. `measure` runs both and says what is so here.
"""

#: As users write it, and made equal: what the names of their functions end in.
VARIANTS = {"plain": "", "equal": "_equal"}
