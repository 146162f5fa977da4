"""A module that cannot be imported."""

import a_module_that_nobody_wrote  # type: ignore[import-not-found]  # noqa: F401
