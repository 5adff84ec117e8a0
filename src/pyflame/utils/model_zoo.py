"""torch.utils.model_zoo by its path, the older name of torch.hub's: nothing is downloaded."""

from pyflame.hub import __getattr__  # noqa: F401  tqdm
from pyflame.hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]
