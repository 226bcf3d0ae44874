"""Configuration: one YAML file becomes one typed, frozen `RunConfig`; unknown keys are refused.

`schema` holds the words, `load` reads a file and its overrides, `checks` looks at keys that
depend on one another, `model_spec` is what the other rooms need to know of a model.
"""

from vpp_ms.config.load import load_config
from vpp_ms.config.model_spec import MLASpec, ModelSpec, MoESpec, RopeSpec
from vpp_ms.config.schema import RunConfig

__all__ = ["MLASpec", "ModelSpec", "MoESpec", "RopeSpec", "RunConfig", "load_config"]
