"""Ninth station: tables and figures. The only place that imports matplotlib or writes result files."""
