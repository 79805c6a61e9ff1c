"""The catalogue of semantic differences between PyTorch and MindSpore.

An entry is data (``entries/TOPIC.toml``) with one probe per framework, a function of the same name
in ``dualml_torch/parity/diffs/TOPIC.py`` and ``dualml_ms/parity/diffs/TOPIC.py``: ``gelu(…)`` does
what a user would write, ``gelu_equal(…)`` what makes the two agree. `measure_entries` runs both and
reports whether the entry holds on this machine.
"""

#: Variants of a probe (as users write it, and made equal) → suffix of the function's name.
VARIANTS = {"plain": "", "equal": "_equal"}
