"""Tables, figures and a self-contained HTML page."""
