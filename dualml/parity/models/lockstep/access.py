"""Framework's part in a comparison block by block, see ``dualml_torch.parity.blocks``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

#: Makes the arguments of a call, ``(args, kwargs)``, from their tensors.
Rebuild = Callable[[Sequence[Any]], Any]


class BlockCall(Protocol):
    """One call of a block (a part of the model that runs with its own weights), as a node of the
    model's graph."""

    def forward(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """Return the output tensors of the call for its input tensors."""
        ...

    def backward(self, gradients: Sequence[Any]) -> list[Any]:
        """Return the gradients of the input tensors, None where there is none, for those of the
        output tensors."""
        ...

    def rebuild_output(self, tensors: Sequence[Any]) -> Any:
        """Return the call's output (tuple, dictionary, …) with these tensors in the places of its
        own."""


#: Makes a call from the name of the block, the tensors among its arguments, and their `Rebuild`.
CallFactory = Callable[[str, Sequence[Any], Rebuild], BlockCall]


class BlockAccess(Protocol):
    """Access to the blocks of a model whose parameters are made without memory: they have a shape
    only, until a block runs with weights from the caller."""

    def is_float(self, tensor: Any) -> bool:
        """Return whether a tensor has floating-point numbers."""
        ...

    def empty_parameters(self) -> list[str]:
        """Return the names of the parameters without memory, which get weights from the caller."""
        ...

    def shared_parameters(self) -> list[str]:
        """Return the names of parameters that several modules share."""
        ...

    def load(self, weights: Mapping[str, Any]) -> None:
        """Give parameters of the model, by name, these tensors permanently."""

    def load_constant(self, name: str, tensor: Any) -> None:
        """Copy a tensor into the buffer, or the parameter with memory, of this name."""

    def intercept(self, name: str, make_call: CallFactory, *, differentiated: bool) -> None:
        """Replace calls of the block ``name``, from now on, by the `BlockCall` that ``make_call``
        returns for their arguments.

        Args:
            differentiated: whether the calls are nodes of a graph, so that their ``backward`` is
                called.
        """

    def run(
        self, name: str, weights: dict[str, Any], tensors: Sequence[Any], rebuild: Rebuild
    ) -> Any:
        """Return the output of a block, computed without a graph.

        Args:
            weights: the block's weights by name; may be emptied.
            tensors: the tensors among its arguments.
            rebuild: makes the arguments of these tensors.
        """

    def differentiate(
        self,
        name: str,
        weights: dict[str, Any],
        tensors: Sequence[Any],
        rebuild: Rebuild,
        gradients: Sequence[Any],
    ) -> tuple[dict[str, Any], list[Any]]:
        """Return the gradients of a block's trained weights, by name, and of its input tensors,
        None where there is none.

        Args:
            weights: the block's weights by name; may be emptied.
            tensors: the tensors among its arguments.
            rebuild: makes the arguments of these tensors.
            gradients: gradients of the output tensors, None for those that have none.
        """
        ...

    def step(
        self, loss: Callable[[Any, Any], Any], inputs: Sequence[Any], targets: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Make a forward and a backward pass of the whole model; return the loss, and the gradients
        of the parameters that have memory, by name.

        Args:
            loss: function of outputs and targets.
        """
        ...

    def updated(
        self,
        weights: dict[str, Any],
        gradients: Mapping[str, Any],
        make_optimizer: Callable[[Any], Any],
    ) -> AbstractContextManager[tuple[Any, Any]]:
        """Return a context in which these weights, by their names in the model, were updated once
        with their gradients.

        Args:
            weights: the trained weights; may be emptied.
            make_optimizer: makes an optimizer over the trained parameters of a model.

        Returns:
            A context that yields a model, which has the new weights under the same names and
                computes nothing, and the optimizer.
        """
        ...

    def forward(self, inputs: Sequence[Any]) -> Any:
        """Return the whole model's output for these inputs, computed without a graph."""

    def is_missing_weight(self, error: Exception) -> bool:
        """Return whether an error says that a parameter without memory was used."""
        ...


class BlockFramework(Protocol):
    """Interface of the module ``parity.blocks`` of a backend package."""

    BlockAccess: Callable[[Any, str], BlockAccess]

    def building_empty(self) -> AbstractContextManager[None]:
        """Let parameters that are made inside the context have a shape but no memory."""
        ...
