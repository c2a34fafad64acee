// Scripts of all pages. Every page works without them.
