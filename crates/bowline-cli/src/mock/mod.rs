//! `bowline mock`: serves a recording, with faults if told so.

mod faults;

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bowline::exchange::{Dialect, Dialects};
use bowline::http::server::SourcePolicy;
use bowline_recording::{DropAfter, Latency, Mock, Recording};
use clap::Args;
use tokio::net::TcpListener;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::log::log_to_stderr;
use crate::output::{visible, visible_line};
use crate::show;
use crate::suggestion::Suggestion;
use crate::values::parse_address;
use faults::{FailureSpec, parse_drop_after, parse_latency};

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct MockOptions {
    /// The recording, a file that `bowline tap --record` wrote.
    file: PathBuf,
    /// Serve over HTTP on this address, at /mcp, and print READY and the URL; port 0 selects a free port [default:
    /// stdin and stdout].
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    http: Option<String>,
    /// Serve this protocol version and no other (repeatable).
    #[arg(long, value_name = "VERSION")]
    protocol_version: Vec<String>,
    /// How long answers take: `recorded`, or a time such as 200ms.
    #[arg(long, value_name = "TIME", value_parser = parse_latency)]
    latency: Option<Latency>,
    /// Answer with an error: a rate (10%), a method (tools/call), or both (tools/call=10%), with a code after a colon
    /// (10%:-32603) (repeatable).
    #[arg(long, value_name = "WHAT", value_parser = FailureSpec::parse)]
    fail: Vec<FailureSpec>,
    /// Close each connection in place of the answer after N, or after a number of bytes (4096B, 10kB, 1MB).
    #[arg(long, value_name = "N", value_parser = parse_drop_after)]
    drop_after: Option<DropAfter>,
    /// Decides which requests fail: the same seed, the same requests.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Log more to stderr; twice for everything.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

impl MockOptions {
    /// Serves until stdin ends, a signal, or a connection over stdio is dropped.
    ///
    /// # Errors
    ///
    /// If the file is not a recording, a version is unknown, or the address is in use.
    pub(crate) async fn run(&self) -> Result<Exit, Failure> {
        log_to_stderr(self.verbose);
        let recording = open_recording(&self.file)?;
        let mut builder = Mock::builder(&recording)
            .versions(self.versions()?)
            .seed(self.seed)
            .on_unmatched(|unmatched| eprintln!("bowline: {}", visible_line(&unmatched.message)));
        for failure in &self.fail {
            builder = builder.fail(failure.failure());
        }
        if let Some(latency) = self.latency {
            builder = builder.latency(latency);
        }
        if let Some(drop_after) = self.drop_after {
            builder = builder.drop_after(drop_after);
        }
        let mock = builder.build();
        let requests = mock.requests();
        if requests == 0 || (self.http.is_none() && io::stdin().is_terminal()) {
            let file = self.file.to_string_lossy();
            eprintln!(
                "bowline: {} has {requests} requests; waiting for a client",
                visible(&file)
            );
        }
        match &self.http {
            Some(address) => serve_http(&mock, address).await?,
            None => serve_stdio(&mock).await?,
        }
        Ok(Exit::Success)
    }

    fn versions(&self) -> Result<Dialects, Failure> {
        let wanted = &self.protocol_version;
        if let Some(unknown) = wanted.iter().find(|version| Dialect::of(version).is_none()) {
            let all = Dialects::all();
            let known: Vec<&str> = all.iter().map(|dialect| dialect.version).collect();
            return Err(
                Failure::usage(format!("unknown protocol version `{unknown}`"))
                    .hint(format!("the versions are {}", known.join(", "))),
            );
        }
        Ok(Dialects::only(|dialect| {
            wanted.is_empty() || wanted.iter().any(|version| version == dialect.version)
        }))
    }
}

/// Reads a recording, and reports what could not be read of it.
///
/// # Errors
///
/// If it is not a recording.
pub(crate) fn open_recording(file: &Path) -> Result<Recording, Failure> {
    let recording = show::open(file)?;
    for problem in recording.problems.iter().take(MAX_PROBLEMS) {
        let text = format!("{}: {problem}", file.display());
        eprintln!("bowline: {}", visible(&text));
    }
    Ok(recording)
}

async fn serve_stdio(mock: &Mock) -> Result<(), Failure> {
    let served = match mock.drops_connections() {
        false => mock.wire().serve_stdio().await,
        // Not `wire::stdio`, whose stream cannot be cut in the middle of a line.
        true => {
            let served = mock.serve(tokio::io::stdin(), tokio::io::stdout()).await;
            eprintln!("bowline: the connection has ended");
            served
        }
    };
    served.map_err(|error| Failure::other("failed to serve").caused_by(error))
}

async fn serve_http(mock: &Mock, address: &str) -> Result<(), Failure> {
    let cannot_listen = |error: Box<dyn std::error::Error + Send + Sync>| {
        Failure::other(format!("failed to listen on {address}"))
            .caused_by(error)
            .suggest(Suggestion::FreeAddress)
    };
    let service = mock.http();
    if !mock.drops_connections() {
        let bound = service.bind(address).await;
        let bound = bound.map_err(|error| cannot_listen(error.into()))?;
        println!("READY http://{}/mcp", bound.local_addr());
        let served = bound.serve_until_signal().await;
        return served.map_err(|error| Failure::other("failed to serve").caused_by(error));
    }
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| cannot_listen(error.into()))?;
    let local = listener.local_addr();
    let local = local.map_err(|error| cannot_listen(error.into()))?;
    println!("READY http://{local}/mcp");
    let mut service = service.paths(["/mcp", "/sse"]);
    if !local.ip().is_loopback() {
        service = service.source(SourcePolicy::public());
    }
    loop {
        let (stream, _) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        // Responses are small, and Nagle's algorithm would delay them.
        let _ = stream.set_nodelay(true);
        let (mock, service) = (mock.clone(), service.clone());
        // Not owned by anything but the runtime, which ends with the command.
        tokio::spawn(async move { mock.serve_connection(&service, stream).await });
    }
}

/// The pause after a connection could not be accepted, such as for want of descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// How many unreadable lines are reported.
const MAX_PROBLEMS: usize = 10;
