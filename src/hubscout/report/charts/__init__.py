"""Charts as inline SVG: drawn here, made interactive by the page's script, readable without it."""
