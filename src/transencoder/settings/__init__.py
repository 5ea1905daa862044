"""A method's config as plain tables and as TOML: what its fields are, how they are filled and written."""

from transencoder.settings.fields import Setting, dotted_names, nested_settings, settings_of
from transencoder.settings.tables import (
    ROWS_MARK,
    build,
    expanded,
    method_name,
    put,
    recipe_toml,
    store,
    value_from_text,
)

__all__ = [
    "ROWS_MARK",
    "Setting",
    "build",
    "dotted_names",
    "expanded",
    "method_name",
    "nested_settings",
    "put",
    "recipe_toml",
    "settings_of",
    "store",
    "value_from_text",
]
