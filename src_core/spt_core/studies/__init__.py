"""From slides with labels to tables and reports: how good models are."""
