"""Resources of the REST API, one module per noun: decode, one call of the client, encode."""
