"""The engine as a process of its own: ``python -m farthing.server.engine_process FD``.

``FD`` is the number of an inherited socket, the engine's end of the seam. The first message on it
is an :class:`~farthing.server.engine_settings.EngineSettings`.
"""
