"""Requests and their life: from a prompts file to answers, results and traces.

`job.run_job` and `job.compare_job` are the ways in: they prepare a `Job`, start the ranks and
wait. On each rank `worker` makes a `Session`; on rank 0 it runs the `Engine`, which admits
requests, feeds micro-batches into the window and commits sampled tokens.
"""
