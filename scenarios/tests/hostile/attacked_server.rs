//! The attacked server: a separate process with a few tools and default limits, over HTTP and a line wire.

use std::collections::BTreeMap;
use std::fmt;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline::http::HttpService;
use bowline::http::legacy::Legacy;
use bowline::prelude::*;
use bowline::schemars::{self, JsonSchema};
use bowline::server::{ChangeBus, LocalChangeBus, ServerChange};
use bowline::types::LoggingLevel;
use bowline::wire::Lines;
use bowline::{CallToolResult, Json, Limits};
use bowline_core::era::Dialects;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The configuration of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerSetup {
    /// The defaults of `Server::new`.
    Default,
    /// Without legacy versions.
    ModernOnly,
    /// Without legacy sessions.
    Stateless,
    /// At most four concurrent requests.
    FourRequests,
    /// Every timeout is `Duration::MAX`.
    InfiniteTimeouts,
    /// The same, for a shutdown, during which honest clients are not served.
    ShuttingDown,
}

impl ServerSetup {
    pub(crate) const ALL: [Self; 6] = [
        Self::Default,
        Self::ModernOnly,
        Self::Stateless,
        Self::FourRequests,
        Self::InfiniteTimeouts,
        Self::ShuttingDown,
    ];

    /// The command-line name.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::ModernOnly => "modern-only",
            Self::Stateless => "stateless",
            Self::FourRequests => "four-requests",
            Self::InfiniteTimeouts => "infinite-timeouts",
            Self::ShuttingDown => "shutting-down",
        }
    }
}

/// Serves until stdin ends; prints its addresses.
pub(crate) fn main(setup: &str) -> ExitCode {
    let Some(setup) = ServerSetup::ALL.into_iter().find(|own| own.key() == setup) else {
        return ExitCode::from(2);
    };
    tracing::subscriber::set_global_default(EventLengthCheck).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(serve(setup));
    ExitCode::SUCCESS
}

async fn serve(setup: ServerSetup) {
    let mut server = server();
    if setup == ServerSetup::FourRequests {
        server = server.limits(Limits {
            requests: 4,
            ..Limits::default()
        });
    }
    let http = service(setup, &server);
    let bound = http.bind("127.0.0.1:0").await.unwrap();
    let lines = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("http {}", bound.local_addr());
    println!("lines {}", lines.local_addr().unwrap());
    let wires = Arc::new(Mutex::new(JoinSet::new()));
    tokio::spawn(serve_lines(lines, server.clone(), wires.clone()));
    std::thread::spawn(move || run_commands(&server));
    bound.serve().await.unwrap();
    // A shutdown is complete when the line wires have ended as well.
    let mut wires = std::mem::take(&mut *wires.lock().unwrap_or_else(PoisonError::into_inner));
    while wires.join_next().await.is_some() {}
}

/// Runs the commands on stdin; exits when the runner closes it.
fn run_commands(server: &Server) {
    for line in std::io::stdin().lines() {
        match line.as_deref() {
            Ok("shut down") => server.shut_down(Duration::MAX),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    std::process::exit(0);
}

async fn serve_lines(listener: TcpListener, server: Server, wires: Wires) {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let mut wires = wires.lock().unwrap_or_else(PoisonError::into_inner);
            while wires.try_join_next().is_some() {}
            wires.spawn(server.clone().serve(Lines::tcp(stream)));
        }
    }
}

/// The line wires that are being served.
type Wires = Arc<Mutex<JoinSet<bowline::Result<()>>>>;

fn service(setup: ServerSetup, server: &Server) -> HttpService {
    let http = server.http();
    match setup {
        ServerSetup::Default | ServerSetup::FourRequests => http,
        ServerSetup::ModernOnly => http.versions(Dialects::modern()),
        ServerSetup::Stateless => http.legacy(Legacy::stateless()),
        ServerSetup::InfiniteTimeouts | ServerSetup::ShuttingDown => {
            let legacy = Legacy::sessions()
                .idle_timeout(Duration::MAX)
                .orphan_timeout(Duration::MAX)
                .retry(Duration::MAX);
            http.keep_alive(Duration::MAX)
                .stream_after(Duration::MAX)
                .legacy(legacy)
        }
    }
}

fn server() -> Server {
    let bus = LocalChangeBus::default();
    Server::new("attacked", "1.0.0")
        .change_bus(bus.clone())
        .state(bus)
        .resource_subscriptions()
        .logging()
        .tool(echo)
        .tool(slow)
        .tool(report_start)
        .tool(big)
        .tool(burst)
        .tool(ask)
        .tool(touch)
        .resource(note)
}

/// Returns its argument.
#[tool(read_only)]
async fn echo(text: String) -> String {
    text
}

/// Sleeps; takes an unused argument of any size.
#[tool(read_only)]
async fn slow(seconds: f64, padding: Option<String>) -> &'static str {
    crate::pause::pause(Duration::from_secs_f64(seconds.clamp(0.0, 60.0))).await;
    match padding {
        Some(_) => "slept with padding",
        None => "slept",
    }
}

/// Prints that it has started, and sleeps.
#[tool(read_only)]
async fn report_start(way: String) -> &'static str {
    println!("begun {way}");
    crate::pause::pause(Duration::from_millis(1500)).await;
    "slept"
}

/// Returns this many bytes, at most one mebibyte. They are encoded once for all calls, so that the attack is limited by
/// memory and not by the processor.
#[tool(read_only)]
async fn big(bytes: usize) -> CallToolResult {
    static ENCODED: Mutex<BTreeMap<usize, Json>> = Mutex::new(BTreeMap::new());
    let mut encoded = ENCODED.lock().unwrap_or_else(PoisonError::into_inner);
    let text = encoded
        .entry(bytes.min(1 << 20))
        .or_insert_with_key(|bytes| {
            Json::parse(format!(r#"{{"x":"{}"}}"#, "x".repeat(*bytes))).unwrap()
        });
    let mut result = CallToolResult::text("");
    result.structured_content = Some(text.clone());
    result
}

/// Sends `count` log messages of this many bytes to the caller. They are encoded once, as those of `big`.
#[tool(read_only)]
async fn burst(count: u32, bytes: usize, cx: Context) -> &'static str {
    let message = Json::parse(format!(r#""{}""#, "x".repeat(bytes.min(1 << 20)))).unwrap();
    for step in 0..count.min(100_000) {
        cx.log(LoggingLevel::Error, message.clone());
        if step % 64 == 0 {
            tokio::task::yield_now().await;
        }
    }
    "done"
}

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

/// Elicits a name.
#[tool(requires(elicitation))]
async fn ask(prompt: String, cx: Context) -> Result<String, ToolError> {
    let name: Name = cx.elicit("name", prompt).await?;
    Ok(name.name)
}

/// Announces that a resource was updated.
#[tool]
async fn touch(uri: String, times: u32, State(bus): State<LocalChangeBus>) -> &'static str {
    for step in 0..times.min(10_000) {
        bus.publish(ServerChange::Resource(uri.clone()));
        if step % 16 == 0 {
            tokio::task::yield_now().await;
        }
    }
    "touched"
}

/// A note.
#[resource(uri = "note://one", mime_type = "text/plain")]
async fn note() -> &'static str {
    "one"
}

/// A subscriber that reports events longer than [`MAX_EVENT_BYTES`].
struct EventLengthCheck;

impl tracing::Subscriber for EventLengthCheck {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= tracing::Level::DEBUG
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::Id {
        tracing::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::Id, _: &tracing::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut length = ByteCount(0);
        event.record(&mut length);
        if length.0 > MAX_EVENT_BYTES {
            let (target, line) = (event.metadata().target(), event.metadata().line());
            let at = format!("{target}:{}", line.unwrap_or_default());
            eprintln!("a log event of {} bytes at {at}", length.0);
        }
    }

    fn enter(&self, _: &tracing::Id) {}

    fn exit(&self, _: &tracing::Id) {}
}

/// Counts the bytes of a formatted event.
struct ByteCount(usize);

impl tracing::field::Visit for ByteCount {
    fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn fmt::Debug) {
        let _ = fmt::write(self, format_args!("{value:?}"));
    }
}

impl fmt::Write for ByteCount {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

/// The limit of a log event, so that a peer cannot make it arbitrarily long.
const MAX_EVENT_BYTES: usize = 8 * 1024;
