"""Op sets: how a layer is computed on a device. `cpu` is run and tested; `ascend` is not yet."""
