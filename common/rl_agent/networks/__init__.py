"""Networks, action distributions and the flat vector of their parameters."""
