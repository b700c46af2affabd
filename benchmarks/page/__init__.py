"""The page in the browser: what it costs, and how soon it is drawn."""
