"""Types of arrays whose kind of numbers no Python type fixes."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

#: An array of any kind of numbers.
Array = NDArray[Any]
#: Name → array.
Arrays = dict[str, Array]
#: A tensor of a framework, or an array of the reference.
Tensor = Any
