"""vpp_ms: prefill of very long prompts through V-shaped virtual pipeline stages.

A YAML file becomes a `Plan`, a plan becomes a `Schedule`, and the same schedule objects are
walked by the simulator and by the ranks; both return the same `Trace`.
"""

__version__ = "0.1.0"
