"""Models: weights, layers and `Stage`, one virtual stage on this process's device.

`stage` and what it is made of (`bank`, `ops/`) import MindSpore; reading checkpoints, rotary
tables and the work list of a micro-batch are plain numpy.
"""
