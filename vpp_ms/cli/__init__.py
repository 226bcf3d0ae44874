"""The `vpp-ms` command: run, plan, compare, simulate, calibrate, report and prepare-demo.

Nothing here imports MindSpore and every room is imported by the command that needs it, so that
`--help` and a mistyped key answer at once. Results go to stdout, progress and errors to stderr.
"""
