"""Pictures as pure functions of rows: no page, no clock, no store."""
