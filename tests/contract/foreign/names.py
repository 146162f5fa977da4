"""Names that the web application and its tests share; the application reads them at import."""

# Names the folder of the page in the environment of the application.
PAGES_VARIABLE = "FOREIGN_PAGES"

# The one subprotocol that the application's WebSocket speaks.
SUBPROTOCOL = "echo.v1"
