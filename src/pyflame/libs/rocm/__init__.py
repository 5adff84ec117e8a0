"""AMD's libraries.

None of this has ever run on AMD hardware: PyFlame is developed where there is none. What stands in for that is written
in `tests/libs`: tables compared with facts from AMD's headers, and every call made through ctypes into a stand-in
library that is generated from those facts. A wrong result is caught at first use by `engine/libraries/tuner.py`.
"""
