"""torch.nn.utils.stateless by its path: what is torch.func.functional_call now."""

from pyflame.nn.functional_call import functional_call

__all__ = ["functional_call"]
