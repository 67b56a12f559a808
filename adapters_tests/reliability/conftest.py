"""The fixtures of the end-to-end suite serve here, too."""

from adapters_tests.e2e.conftest import anyio_backend, model, rig, runtime

__all__ = ["anyio_backend", "model", "rig", "runtime"]
