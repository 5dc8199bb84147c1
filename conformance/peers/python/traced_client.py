"""One trace through four programs, with version 2 of the Python SDK at both ends.

    python traced_client.py 2026 path/to/bowline path/to/interop-relay

    Python client ─ stdio ─▶ bowline bridge ─ HTTP ─▶ interop-relay ─ stdio ─▶ Python server

All send their spans to the OTLP receiver of oteltest, in this process. The checks are about the tree that it received.
"""

import logging
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import anyio
from mcp import Client, StdioServerParameters
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from oteltest.sink import HttpSink
from oteltest.sink.handler import RequestHandler

MODES = {"2026": "2026-07-28", "legacy": "legacy"}
CLIENT, SERVER = 3, 2  # the kinds of spans, as OTLP numbers them
# The spans of the call, from the outside to the inside: service, kind, scope.
HOPS = [
    ("python-client", CLIENT, "mcp-python-sdk"),
    ("bowline-bridge", SERVER, "bowline"),
    ("bowline-bridge", CLIENT, "bowline"),
    ("interop-relay", SERVER, "bowline"),
    ("interop-relay", CLIENT, "bowline"),
    ("python-server", SERVER, "mcp-python-sdk"),
]


class Received(RequestHandler):
    def __init__(self):
        self.spans = []

    def handle_trace(self, request, headers):
        for resource in request.resource_spans:
            names = [it.value.string_value for it in resource.resource.attributes if it.key == "service.name"]
            for scope in resource.scope_spans:
                self.spans += [(names[0], scope.scope.name, span) for span in scope.spans]

    def handle_metrics(self, request, headers):
        pass

    def handle_logs(self, request, headers):
        pass


class Report:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, name, problem):
        if problem is None:
            self.passed += 1
            print(f"ok {name}", flush=True)
        else:
            self.failed += 1
            print(f"FAILED {name}: {problem}", flush=True)


def start_sink(received):
    sink = HttpSink(received, logging.getLogger("sink"), port=0)
    sink.start()
    deadline = time.monotonic() + 30
    while sink.httpd is None:
        if time.monotonic() > deadline:
            raise TimeoutError("the OTLP receiver does not start")
        time.sleep(0.01)
    sink.httpd.RequestHandlerClass.log_message = lambda *_: None
    return f"http://127.0.0.1:{sink.httpd.server_port}"


async def run(mode, bowline, relay):
    report, received = Report(), Received()
    endpoint = start_sink(received)
    provider = TracerProvider(resource=Resource.create({"service.name": "python-client"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces")))
    trace.set_tracer_provider(provider)

    server = [sys.executable, str(Path(__file__).with_name("traced_server.py"))]
    env = dict(os.environ, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
    relaying = subprocess.Popen([relay, endpoint, *server], env=env, stdout=subprocess.PIPE, text=True)
    try:
        url = relaying.stdout.readline().removeprefix("READY ").strip()
        bridge = StdioServerParameters(command=bowline, args=["bridge", "--otlp", endpoint, url])
        with anyio.fail_after(60):
            async with Client(bridge, mode=MODES[mode]) as client:
                report.check("open", None)
                print(f"# {client.protocol_version}", flush=True)
                with trace.get_tracer("test").start_as_current_span("agent") as agent:
                    result = await client.call_tool("relay", {"text": "hello"})
                text = result.content[0].text
                report.check("call", None if text == "python: hello" else f"got {text!r}")
    finally:
        relaying.send_signal(signal.SIGTERM)
        code = relaying.wait(timeout=30)
    check_tree(report, received.spans, agent.get_span_context())
    report.check("close", None if code == 0 else f"the relay exited with {code}")
    print(f"{report.passed} passed, {report.failed} failed", flush=True)
    return 0 if report.failed == 0 else 1


def check_tree(report, spans, root):
    trace_id = root.trace_id.to_bytes(16, "big")
    # The Python client also lists the tools, to know the schema of the result.
    calls = [it for it in spans if method(it[2]) == "tools/call"]
    inside = [it for it in calls if it[2].trace_id == trace_id]
    elsewhere = [f"{service} {span.name}" for service, _, span in calls if span.trace_id != trace_id]
    seen = sorted({service for service, _, _ in inside})
    wanted = sorted({service for service, _, _ in HOPS})
    report.check("trace", None if not elsewhere and seen == wanted else f"{seen}, in other traces: {elsewhere}")

    parent, problem, hops = root.span_id.to_bytes(8, "big"), None, []
    for service, kind, scope in HOPS:
        found = [span for it, of, span in inside if (it, of, span.kind) == (service, scope, kind)]
        found = [span for span in found if span.parent_span_id == parent]
        if len(found) != 1:
            all_spans = [(it, span.kind, span.name, span.span_id.hex(), span.parent_span_id.hex()) for it, _, span in inside]
            problem = f"{len(found)} spans of {service} of kind {kind} with the parent {parent.hex()}: {all_spans}"
            break
        hops.append(found[0])
        parent = found[0].span_id
    report.check("parents", problem)

    # The Python client names its span in its own way, not as the conventions say.
    names = [span.name for span in hops]
    wanted = ["MCP send tools/call relay"] + ["tools/call relay"] * 5
    report.check("names", None if names == wanted else f"{names}")


def method(span):
    values = [it.value.string_value for it in span.attributes if it.key == "mcp.method.name"]
    return values[0] if values else None


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    sys.exit(anyio.run(run, *sys.argv[1:]))
