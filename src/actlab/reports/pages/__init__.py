"""Pages for browsers: one HTML file each, with all that it shows in it, so that it asks no network."""
