"""What differs between model families; one folder each, found through `vpp_ms.model.registry`."""
