"""Where vpp_ms meets other projects, one module each, imported only when it is used."""
