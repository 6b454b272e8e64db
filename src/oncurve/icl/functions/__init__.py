"""Classes of functions and prompts drawn from them."""

from oncurve.icl.functions.prompts import Prompts
from oncurve.icl.functions.sample import InputTransform, sample
from oncurve.icl.functions.settings import FunctionSettings, normaliser

__all__ = ["FunctionSettings", "InputTransform", "Prompts", "normaliser", "sample"]
