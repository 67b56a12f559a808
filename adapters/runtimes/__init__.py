"""The runtimes that this package brings, one plug-in each. The only place that names a driver and its scripted model."""
