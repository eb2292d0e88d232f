"""The pages: each gathers what its template shows. Adding one: a module here and its template."""
