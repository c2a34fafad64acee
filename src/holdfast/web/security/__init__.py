"""Who may do what: users, authentication, protection against forged requests, headers, redaction."""
