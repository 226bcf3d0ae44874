"""TODO door plate."""
