"""The server at the end of a trace, on version 2 of the Python SDK: its spans are its own.

    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 python traced_server.py
"""

from mcp.server.mcpserver import MCPServer
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

mcp = MCPServer("traced", version="2", log_level="ERROR")


@mcp.tool()
async def relay(text: str) -> str:
    """Returns its argument."""
    return f"python: {text}"


if __name__ == "__main__":
    provider = TracerProvider(resource=Resource.create({"service.name": "python-server"}))
    # One request for each span, so that none is left when the process is ended.
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    mcp.run("stdio")
