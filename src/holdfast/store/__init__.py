"""The only package that talks to Valkey or Redis."""
