//! The server under attack: a few tools, default limits, HTTP and lines; a process of its own.

use std::collections::BTreeMap;
use std::fmt;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline::http::HttpService;
use bowline::http::legacy::Legacy;
use bowline::prelude::*;
use bowline::schemars::{self, JsonSchema};
use bowline::server::{Bus, Change, LocalBus};
use bowline::types::LoggingLevel;
use bowline::wire::Lines;
use bowline::{CallToolResult, Json, Limits};
use bowline_core::era::Dialects;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// How a server is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// As `Server::new` makes it.
    Default,
    /// Without the legacy era.
    ModernOnly,
    /// Its legacy era has no sessions.
    Stateless,
    /// At most four requests at once.
    FourRequests,
    /// Every interval that can be set is `Duration::MAX`.
    Forever,
    /// The same, about to be shut down: no honest client is owed an answer.
    Leaving,
}

impl Setting {
    pub(crate) const ALL: [Self; 6] = [
        Self::Default,
        Self::ModernOnly,
        Self::Stateless,
        Self::FourRequests,
        Self::Forever,
        Self::Leaving,
    ];

    /// How a command line names it.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::ModernOnly => "modern-only",
            Self::Stateless => "stateless",
            Self::FourRequests => "four-requests",
            Self::Forever => "forever",
            Self::Leaving => "leaving",
        }
    }
}

/// Serves until stdin ends; prints where.
pub(crate) fn main(setting: &str) -> ExitCode {
    let Some(setting) = Setting::ALL.into_iter().find(|own| own.key() == setting) else {
        return ExitCode::from(2);
    };
    tracing::subscriber::set_global_default(Log).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(serve(setting));
    ExitCode::SUCCESS
}

async fn serve(setting: Setting) {
    let mut server = server();
    if setting == Setting::FourRequests {
        server = server.limits(Limits {
            requests: 4,
            ..Limits::default()
        });
    }
    let http = service(setting, &server);
    let bound = http.bind("127.0.0.1:0").await.unwrap();
    let lines = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("http {}", bound.addr());
    println!("lines {}", lines.local_addr().unwrap());
    let wires = Arc::new(Mutex::new(JoinSet::new()));
    tokio::spawn(serve_lines(lines, server.clone(), wires.clone()));
    std::thread::spawn(move || obey(&server));
    bound.serve().await.unwrap();
    // A shutdown is over when the line wires are at their ends as well.
    let mut wires = std::mem::take(&mut *wires.lock().unwrap_or_else(PoisonError::into_inner));
    while wires.join_next().await.is_some() {}
}

/// Obeys the runner, whose end is also the end of this process.
fn obey(server: &Server) {
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

fn service(setting: Setting, server: &Server) -> HttpService {
    let http = server.http();
    match setting {
        Setting::Default | Setting::FourRequests => http,
        Setting::ModernOnly => http.versions(Dialects::modern()),
        Setting::Stateless => http.legacy(Legacy::stateless()),
        Setting::Forever | Setting::Leaving => {
            let legacy = Legacy::sessions()
                .idle_after(Duration::MAX)
                .orphan_limit(Duration::MAX)
                .retry(Duration::MAX);
            http.keep_alive(Duration::MAX)
                .commit_after(Duration::MAX)
                .legacy(legacy)
        }
    }
}

fn server() -> Server {
    let bus = LocalBus::default();
    Server::new("attacked", "1.0.0")
        .bus(bus.clone())
        .state(bus)
        .resource_updates()
        .logging()
        .tool(echo)
        .tool(slow)
        .tool(told)
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

/// Sleeps; takes an argument that is only there to be large.
#[tool(read_only)]
async fn slow(seconds: f64, padding: Option<String>) -> &'static str {
    crate::pause::pause(Duration::from_secs_f64(seconds.clamp(0.0, 60.0))).await;
    match padding {
        Some(_) => "slept with padding",
        None => "slept",
    }
}

/// Prints that it has begun, and sleeps a while.
#[tool(read_only)]
async fn told(way: String) -> &'static str {
    println!("begun {way}");
    crate::pause::pause(Duration::from_millis(1500)).await;
    "slept"
}

/// Returns that many bytes, at most one mebibyte. They are encoded once for all calls, so that attackers find the server's
/// memory and not its processor.
#[tool(read_only)]
async fn big(bytes: usize) -> CallToolResult {
    static MADE: Mutex<BTreeMap<usize, Json>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let text = made.entry(bytes.min(1 << 20)).or_insert_with_key(|bytes| {
        Json::parse(format!(r#"{{"x":"{}"}}"#, "x".repeat(*bytes))).unwrap()
    });
    let mut result = CallToolResult::text("");
    result.structured_content = Some(text.clone());
    result
}

/// Logs that many bytes that often to its caller. They are encoded once for all calls, as those of `big`.
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

/// Asks the user for a name.
#[tool(asks(elicitation))]
async fn ask(prompt: String, cx: Context) -> Result<String, ToolError> {
    let name: Name = cx.elicit("name", prompt).await?;
    Ok(name.name)
}

/// Announces that a resource was updated.
#[tool]
async fn touch(uri: String, times: u32, State(bus): State<LocalBus>) -> &'static str {
    for step in 0..times.min(10_000) {
        bus.announce(Change::Resource(uri.clone()));
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

/// A subscriber that prints only what no log should contain: an event of unbounded length.
struct Log;

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= tracing::Level::DEBUG
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::Id {
        tracing::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::Id, _: &tracing::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut length = Length(0);
        event.record(&mut length);
        if length.0 > LONGEST_EVENT {
            let (target, line) = (event.metadata().target(), event.metadata().line());
            let at = format!("{target}:{}", line.unwrap_or_default());
            eprintln!("a log event of {} bytes at {at}", length.0);
        }
    }

    fn enter(&self, _: &tracing::Id) {}

    fn exit(&self, _: &tracing::Id) {}
}

/// How many bytes an event is when it is written down.
struct Length(usize);

impl tracing::field::Visit for Length {
    fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn fmt::Debug) {
        let _ = fmt::write(self, format_args!("{value:?}"));
    }
}

impl fmt::Write for Length {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

/// A log line must not be as long as a peer decides.
const LONGEST_EVENT: usize = 8 * 1024;
