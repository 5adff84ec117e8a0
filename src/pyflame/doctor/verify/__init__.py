"""`pyflame verify`: a model's values op by op on several devices, and where they first part."""

from pyflame.doctor.verify.compare import compare
from pyflame.doctor.verify.report import Comparison, Report, Row

__all__ = ["Comparison", "Report", "Row", "compare"]
