"""One rank's loop over the shared schedule objects: receive, compute, send, record.

`rank.Executor` walks a `RankQueue` and computes through `compute.StageCompute`, whatever stands
behind it; `descriptor` turns a micro-batch into a message's header and back.
"""
