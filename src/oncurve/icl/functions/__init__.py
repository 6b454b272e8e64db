"""Classes of functions and prompts drawn from them."""

from oncurve.icl.functions.prompts import Prompts
from oncurve.icl.functions.sample import InputTransform, sample
from oncurve.icl.functions.settings import FunctionSettings, normaliser, require_linear

__all__ = ["FunctionSettings", "InputTransform", "Prompts", "normaliser", "require_linear", "sample"]
