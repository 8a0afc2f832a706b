"""How a report is shown: text, JSON, HTML. Knows reports and sources, never how they came about."""
