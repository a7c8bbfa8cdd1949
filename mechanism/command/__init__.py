"""The commands of `mechanism`, one module each; `mechanism/__main__.py` names them and their options."""
