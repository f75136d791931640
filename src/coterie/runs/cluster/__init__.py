"""The runs of a grid on the workers of a Dask cluster; docs/devices.md says how, and why Dask."""
