"""The size of the largest tensor in a computation."""

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Finds the largest tensor that any operation returns, in elements."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = function(*args, **kwargs or {})
        found = [t.numel() for t in tree_leaves(result) if isinstance(t, Tensor)]
        self.elements = max(self.elements, *found, 0)
        return result
