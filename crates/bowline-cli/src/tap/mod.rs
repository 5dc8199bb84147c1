//! `bowline tap`: stands between a client and a server, and shows and records what they send.

mod frames;

mod guard;
pub(crate) use guard::{GuardOptions, guard};

mod live_view;

mod proxy;

mod record_file;

mod shim;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bowline_core::http::source_policy::{parse_host, parse_origin};
use bowline_recording::{Header, Recorder, RecorderOptions, RecorderThread, Redactor, Transport};
use clap::Args;

use crate::child_stderr::StderrWriter;
use crate::encryption::{exposed_headers, print_warning};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::OutputOptions;
use crate::suggestion::Suggestion;
use crate::values::{NamedValue, parse_address, parse_url};

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct TapOptions {
    /// The URL of the server.
    #[arg(value_parser = parse_url, conflicts_with = "command")]
    url: Option<String>,
    /// The command that starts the server, and its arguments.
    #[arg(last = true)]
    command: Vec<OsString>,
    /// Record to this file, or to a new file in this folder. An existing file is not overwritten: the name gets a number.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Listen at this address; port 0 selects a free one [default: 127.0.0.1:8008].
    #[arg(long, value_name = "ADDR", value_parser = parse_address, requires = "url")]
    http: Option<String>,
    /// Accept requests whose `Host` header has this name, in addition to loopback names (repeatable).
    #[arg(long, value_name = "NAME", value_parser = parse_host, requires = "url")]
    allow_host: Vec<String>,
    /// Accept requests from web pages of this origin, in addition to loopback ones (repeatable).
    #[arg(long, value_name = "ORIGIN", value_parser = parse_origin, requires = "url")]
    allow_origin: Vec<String>,
    /// Add this header to the requests for the URL, `Name: value` (repeatable).
    #[arg(long, value_name = "HEADER", requires = "url")]
    header: Vec<String>,
    /// Show and record tokens, cookies and other secrets as they are.
    #[arg(long)]
    no_redact: bool,
    /// Show nothing.
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    output: OutputOptions,
}

/// Runs until the command exits, or the proxy is told to stop.
///
/// # Errors
///
/// If the command cannot be started, or the address cannot be used. A recording that fails is reported, and the messages
/// are passed on all the same.
///
/// # Cancel safety
///
/// Dropping it kills the command and closes all connections.
pub(crate) async fn run(options: TapOptions) -> Result<Exit, Failure> {
    let mut redactor = Redactor::new();
    match (&options.url, options.command.is_empty()) {
        (Some(url), _) => {
            let headers = NamedValue::parse_headers(&options.header).map_err(Failure::usage)?;
            let names = headers.iter().map(|header| header.name.as_str());
            print_warning(exposed_headers(url, names));
            let target = match options.no_redact {
                true => url.clone(),
                false => redactor.path(url),
            };
            let tap = Tap::start(&options, Transport::Http, target, redactor)?;
            let address = options.http.clone();
            let front = proxy::Front {
                address: address.unwrap_or_else(|| DEFAULT_ADDRESS.to_owned()),
                allow_hosts: options.allow_host.clone(),
                allow_origins: options.allow_origin.clone(),
            };
            let served = proxy::run(url, headers, &front, &tap.recorder).await;
            tap.finish();
            served.map(|()| Exit::Success)
        }
        (None, false) => {
            let words = options.command.iter();
            let words: Vec<String> = words.map(|it| it.to_string_lossy().into_owned()).collect();
            let target = match options.no_redact {
                true => words.join(" "),
                false => redactor.command(&words),
            };
            let tap = Tap::start(&options, Transport::Stdio, target, redactor)?;
            let exit = shim::run(&options.command, &tap.recorder, &tap.stderr).await;
            tap.finish();
            exit.map(Exit::Child)
        }
        (None, true) => Err(Failure::usage("expected a URL, or a command after `--`")
            .suggest(Suggestion::Help)
            .hint("a command is put last: -- npx -y some-server")),
    }
}

/// The recorder, and what shows events.
struct Tap {
    recorder: Recorder,
    thread: RecorderThread,
    stderr: StderrWriter,
}

impl Tap {
    /// Starts the recorder; `redactor` has redacted the target.
    fn start(
        options: &TapOptions,
        transport: Transport,
        target: String,
        redactor: Redactor,
    ) -> Result<Self, Failure> {
        let stderr = StderrWriter::start();
        let header = Header::new(transport)
            .recorder(concat!("bowline ", env!("CARGO_PKG_VERSION")))
            .target(target);
        let writer = match &options.record {
            None => None,
            Some(path) => match record_file::create(path) {
                Ok((file, path)) => {
                    stderr.write(&format!("bowline: recording to {}", path.display()));
                    Some(Box::new(file) as Box<dyn std::io::Write + Send>)
                }
                // A host must not lose its server because a disk is full.
                Err(error) => {
                    let path = path.display();
                    stderr.write(&format!("bowline: failed to record to {path}: {error}"));
                    None
                }
            },
        };
        let recorder = RecorderOptions::new(header);
        let mut recorder = match options.no_redact {
            true => recorder.without_redaction(),
            false => recorder.redactor(redactor),
        };
        if !options.quiet {
            recorder =
                recorder.observer(live_view::observer(options.output.output(), stderr.clone()));
        }
        let started = Recorder::start(writer, recorder);
        let (recorder, thread) = started
            .map_err(|error| Failure::other("failed to start the recorder").caused_by(error))?;
        Ok(Self {
            recorder,
            thread,
            stderr,
        })
    }

    fn finish(self) {
        if let Err(error) = self.thread.finish(FINISH_TIMEOUT) {
            let error = format!("bowline: the recording is incomplete: {error}");
            self.stderr.write(&error);
        }
        self.stderr.flush();
    }
}

const DEFAULT_ADDRESS: &str = "127.0.0.1:8008";

/// How long the end waits for the last events to be written.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);
