"""CEL expressions and templates: compiled once at deploy, evaluated with bounded cost."""
