//! [`RunningBridge`]: a bridge under test, with its load.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::load::{Era, HttpLoad, Message};
use crate::machine::{self, Core};
use crate::measure::Sample;
use crate::options::Options;
use crate::program::{ProcessSetting, Program, Subject};

/// The transport of the server behind a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    Http,
    Stdio,
}

/// The server behind the bridges.
pub(super) enum UpstreamServer {
    /// A running one, on the core of the load.
    Http { _program: Program, url: String },
    /// A command that each bridge starts.
    Stdio { command: Vec<String> },
}

impl UpstreamServer {
    pub(super) fn start(behind: Behind) -> Self {
        match behind {
            Behind::Http => {
                let setting = ProcessSetting {
                    arguments: &SERVER_ARGUMENTS,
                    ..ProcessSetting::LOAD
                };
                let (program, address) = Program::serve(Subject::Raw, setting);
                Self::Http {
                    _program: program,
                    url: format!("http://{address}/mcp"),
                }
            }
            Behind::Stdio => {
                let server = Subject::Raw.server();
                let program = server.get_program().to_string_lossy().into_owned();
                let arguments = SERVER_ARGUMENTS.iter().chain(&["--stdio"]);
                let command = std::iter::once(program).chain(arguments.map(ToString::to_string));
                Self::Stdio {
                    command: command.collect(),
                }
            }
        }
    }
}

/// A bridge and its load.
pub(super) struct RunningBridge {
    program: Program,
    load: HttpLoad,
    /// Why it is not measured further.
    failure: Option<String>,
    replies: u64,
}

impl RunningBridge {
    /// Starts a bridge, waits until it listens, and opens connections.
    ///
    /// # Errors
    ///
    /// Why it does not work.
    pub(super) fn start(
        subject: Subject,
        upstream: &UpstreamServer,
        options: &Options,
        era: Era,
        connections: usize,
    ) -> Result<Self, String> {
        let port = free_port()?;
        let command = command(subject, upstream, options, port)?;
        Self::open(command, port, era, connections)
    }

    fn open(mut command: Command, port: u16, era: Era, connections: usize) -> Result<Self, String> {
        let mut program = Program::start_silent(&mut command, Core::Test);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        wait_until_listening(&mut program, address)?;
        let mut bridge = Self {
            program,
            load: caught(|| HttpLoad::open(address, connections, &call(), era))?,
            failure: None,
            replies: 0,
        };
        // The first calls open connections, and show whether the combination works.
        let _ = bridge.measure(Duration::from_millis(100));
        match bridge.failure {
            Some(failure) => Err(failure),
            None => Ok(bridge),
        }
    }

    /// Keeps every connection busy for a window.
    pub(super) fn measure(&mut self, window: Duration) -> Sample {
        let nothing = Sample::of(Vec::new(), 0, Duration::ZERO);
        if self.failure.is_some() {
            return nothing;
        }
        let id = self.program.id();
        let measured = caught(|| {
            self.load.reconnect();
            self.load.measure(id, window)
        });
        let sample = measured.unwrap_or_else(|failure| {
            self.failure = Some(failure);
            nothing
        });
        self.replies += sample.replies;
        sample
    }

    /// Returns the CPU time per call of processes that the bridge has started and that have ended; `None` without any.
    pub(super) fn ended_children_ms_per_call(&self) -> Option<f64> {
        let total = machine::ended_children_cpu_ns(self.id());
        // Warm-ups are a fifth of the calls, and are not in `replies`.
        let calls = self.replies as f64 * 1.25;
        (total > 0).then(|| total as f64 / 1e6 / calls.max(1.0))
    }

    /// Returns why it does not work.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    pub(super) fn id(&self) -> u32 {
        self.program.id()
    }
}

/// The measured call. A bridge may list the tools first, and the raw server lists only the numbered ones.
pub(super) fn call() -> Message {
    Message::call("tool_0", r#"{"text":"hello"}"#, "hello")
}

/// Returns the command of a bridge that listens on `port`.
fn command(
    subject: Subject,
    upstream: &UpstreamServer,
    options: &Options,
    port: u16,
) -> Result<Command, String> {
    match subject {
        Subject::Raw => raw_proxy(upstream, port),
        Subject::Bowline => Ok(bowline(upstream, port)),
        Subject::McpProxy => mcp_proxy(upstream, options, port),
        Subject::Supergateway => supergateway(upstream, options, port),
        Subject::FastMcp => fastmcp(upstream, options, port),
        Subject::RmcpBest | Subject::RmcpDefault => Err("not a bridge".to_owned()),
    }
}

/// With the runtime of `bowline bridge`.
fn raw_proxy(upstream: &UpstreamServer, port: u16) -> Result<Command, String> {
    let UpstreamServer::Http { url, .. } = upstream else {
        return Err("for servers over HTTP only".to_owned());
    };
    let mut command = Command::new(machine::program_folder().join("raw-proxy"));
    command.args(["--url", url, "--port", &port.to_string(), "--threads"]);
    Ok(command)
}

fn bowline(upstream: &UpstreamServer, port: u16) -> Command {
    let mut bridge = bowline_command(port);
    match upstream {
        UpstreamServer::Http { url, .. } => bridge.arg(url),
        UpstreamServer::Stdio { command } => bridge.arg("--").args(command),
    };
    bridge
}

/// Returns `bowline bridge` without a server.
pub(super) fn bowline_command(port: u16) -> Command {
    let mut command = Command::new(machine::program_folder().join("bowline"));
    command.args(["bridge", "--http", &format!("127.0.0.1:{port}")]);
    command
}

fn mcp_proxy(upstream: &UpstreamServer, options: &Options, port: u16) -> Result<Command, String> {
    let UpstreamServer::Stdio { command: server } = upstream else {
        return Err("for servers over stdio only".to_owned());
    };
    let mut command = installed(Subject::McpProxy, options)?;
    command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
    command.args(["--server", "stream", "--"]).args(server);
    Ok(command)
}

/// With a process for each legacy session; by default it starts one for each request.
fn supergateway(
    upstream: &UpstreamServer,
    options: &Options,
    port: u16,
) -> Result<Command, String> {
    let UpstreamServer::Stdio { command: server } = upstream else {
        return Err("for servers over stdio only".to_owned());
    };
    let mut command = installed(Subject::Supergateway, options)?;
    command.args(["--port", &port.to_string(), "--logLevel", "none"]);
    command.args(["--outputTransport", "streamableHttp", "--stateful"]);
    // A shell splits it into words.
    command.arg("--stdio").arg(server.join(" "));
    Ok(command)
}

fn fastmcp(upstream: &UpstreamServer, options: &Options, port: u16) -> Result<Command, String> {
    let mut bridge = installed(Subject::FastMcp, options)?;
    bridge.arg("run");
    match upstream {
        UpstreamServer::Http { url, .. } => bridge.arg(url),
        UpstreamServer::Stdio { command } => {
            let [program, arguments @ ..] = command.as_slice() else {
                return Err("the server has no command".to_owned());
            };
            let server = serde_json::json!({"command": program, "args": arguments});
            let config = serde_json::json!({"mcpServers": {"raw": server}});
            bridge.arg(config_file("mcp.json", &config)?)
        }
    };
    bridge.args(["--transport", "http", "--host", "127.0.0.1"]);
    bridge.args(["--port", &port.to_string()]);
    bridge.args(["--no-banner", "--log-level", "ERROR"]);
    Ok(bridge)
}

fn installed(subject: Subject, options: &Options) -> Result<Command, String> {
    let words = options.bridges.command(subject)?;
    let [program, arguments @ ..] = words else {
        return Err("it has no command".to_owned());
    };
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

/// Writes a configuration file into a folder of this process.
pub(super) fn config_file(name: &str, config: &serde_json::Value) -> Result<PathBuf, String> {
    let folder = std::env::temp_dir().join(format!("bench-{}", std::process::id()));
    let file = folder.join(name);
    let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&file, config.to_string()));
    written.map_err(|error| format!("failed to write {}: {error}", file.display()))?;
    Ok(file)
}

/// Waits until the program accepts connections.
pub(super) fn wait_until_listening(
    program: &mut Program,
    address: SocketAddr,
) -> Result<(), String> {
    let deadline = Instant::now() + START_TIMEOUT;
    while TcpStream::connect(address).is_err() {
        if program.has_exited() {
            return Err("it exited before it listened".to_owned());
        }
        if Instant::now() > deadline {
            return Err(format!("it did not listen within {START_TIMEOUT:?}"));
        }
        thread::sleep(START_PAUSE);
    }
    Ok(())
}

/// Returns a port that is free now, outside of the ephemeral range: most of the bridges do not print the port that they
/// have got, and a connection could get an ephemeral one until the bridge listens.
pub(super) fn free_port() -> Result<u16, String> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let offset = (std::process::id() % u32::from(PORTS)) as u16;
    for _ in 0..PORTS {
        let next = NEXT.fetch_add(1, Ordering::Relaxed) % PORTS;
        let port = FIRST_PORT + (offset + next) % PORTS;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err("no free port".to_owned())
}

/// Runs a part of the load, which panics on an unexpected reply. A bridge of others that does not work must not end the
/// benchmark.
fn caught<T>(load: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(load)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("the load failed");
        let line = text.lines().next().unwrap_or_default();
        line.chars().take(MAX_REASON).collect()
    })
}

/// The raw server lists one tool.
pub(super) const SERVER_ARGUMENTS: [&str; 2] = ["--tools", "1"];
const START_TIMEOUT: Duration = Duration::from_secs(60);
const START_PAUSE: Duration = Duration::from_millis(20);
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 10_000;
/// The maximum length of a reason in the report.
const MAX_REASON: usize = 300;
