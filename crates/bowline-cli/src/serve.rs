//! `bowline serve-demo`: serves the fixture over stdio or HTTP.

use bowline::http::HttpService;
use bowline::telemetry::Telemetry;
use bowline::testing::{RecordingWire, WireRecord};
use bowline::{Result, wire};
use tokio::sync::watch;

use crate::counters::{Counters, SlowCallCounts};
use crate::demo::describe;
use crate::failure::Failure;
use crate::fixture::Fixture;
use crate::options::{DrainOptions, ServeTransport};
use crate::telemetry::{Exporters, TelemetryOptions};

/// Serves until a signal, or until stdin ends. The last spans and metrics are sent before it returns.
pub(crate) async fn run(
    transport: ServeTransport,
    telemetry: &TelemetryOptions,
) -> std::result::Result<(), Failure> {
    let exporters = telemetry.start("bowline-serve-demo").await?;
    let served = serve(transport, exporters.as_ref().map(Exporters::telemetry)).await;
    if let Some(exporters) = exporters {
        exporters.shut_down().await;
    }
    served.map_err(|error| Failure::other("failed to serve").caused_by(error))
}

async fn serve(transport: ServeTransport, telemetry: Option<Telemetry>) -> Result<()> {
    let fixture = Fixture::new();
    let mut server = fixture.server();
    if let Some(telemetry) = telemetry {
        server = server.telemetry(telemetry);
    }
    match transport {
        ServeTransport::Stdio {
            report: false,
            grace,
        } => {
            if let Some(grace) = grace {
                server = server.grace(grace);
            }
            server.serve_stdio().await
        }
        ServeTransport::Stdio { report: true, .. } => {
            let record = WireRecord::default();
            // Subscribed before serving, so that no change of the counters is missed.
            let changes = fixture.counters().watch();
            let wire = RecordingWire::with_record(wire::stdio()?, &record);
            tokio::select! {
                served = server.serve(wire) => served,
                () = report_changes(changes, &record) => Ok(()),
            }
        }
        ServeTransport::Http { port, drain } => {
            let service = drain.apply(server.http());
            let bound = service.bind(("127.0.0.1", port)).await?;
            println!("READY http://{}/mcp", bound.local_addr());
            let served = bound.serve_until_signal().await;
            let report = server.drain_report();
            println!(
                "DRAINED refused={} cancelled={}",
                report.refused, report.cancelled
            );
            served
        }
    }
}

impl DrainOptions {
    pub(crate) fn apply(self, mut service: HttpService) -> HttpService {
        if let Some(delay) = self.drain_delay {
            service = service.drain_delay(delay);
        }
        if let Some(grace) = self.grace {
            service = service.grace(grace);
        }
        service
    }
}

/// Writes every change of the counters to stderr, after the cancellations that were recorded before it.
async fn report_changes(mut changes: watch::Receiver<SlowCallCounts>, record: &WireRecord) {
    while changes.changed().await.is_ok() {
        let counts = *changes.borrow_and_update();
        let mut events = record.take();
        events.retain(|event| describe(event).is_some());
        for event in events.iter().flat_map(serde_json::to_string) {
            eprintln!("{EVENT_PREFIX}{event}");
        }
        if let Ok(counts) = serde_json::to_string(&counts) {
            eprintln!("{COUNTS_PREFIX}{counts}");
        }
    }
}

/// Parses a line that another process wrote in [`report_changes`].
pub(crate) fn parse_report(line: &str, counters: &Counters, record: &WireRecord) {
    if let Some(event) = line.strip_prefix(EVENT_PREFIX) {
        serde_json::from_str(event)
            .into_iter()
            .for_each(|event| record.push(event));
    } else if let Some(Ok(counts)) = line
        .strip_prefix(COUNTS_PREFIX)
        .map(serde_json::from_str::<SlowCallCounts>)
    {
        counters.set(counts);
    }
}

const EVENT_PREFIX: &str = "event ";
const COUNTS_PREFIX: &str = "counts ";
