"""The kernels' files are imported by the first plan, also where the first try was interrupted."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import pyflame as pf
assert "pyflame.kernels.matmul" not in sys.modules
from pyflame.kernels import spec
register = spec.kernel

def interrupted(found):
    register(found)
    if spec.kernel is interrupted:  # files that were imported meanwhile keep it
        raise KeyboardInterrupt
    return found

spec.kernel = interrupted
x = pf.ones(8, 8)
try:
    (x @ x).numpy()
    raise SystemExit("it was not interrupted")
except KeyboardInterrupt:
    spec.kernel = register
print((x @ x).sum().item(), pf.sort(x)[0].sum().item())
"""


@pytest.mark.slow
def test_an_interrupted_import_is_done_again() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("512.0 64.0\n", "")
