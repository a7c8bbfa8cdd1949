"""Plugins that this project installs into vLLM. Nothing here imports vLLM or torch before it is asked to."""
