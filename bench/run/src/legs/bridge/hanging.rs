//! Many clients of a bridge to several servers, one of which hangs: whether the calls to the others take longer.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::running_bridge::{
    SERVER_ARGUMENTS, bowline_command, config_file, free_port, wait_until_listening,
};
use crate::load::{Era, HttpLoad, Message, ProtocolContext, connect, send_one};
use crate::machine::{self, Core};
use crate::measure::{Cell, Goal, Row, Sample, Series, Spread};
use crate::options::Options;
use crate::program::{ProcessSetting, Program, Subject};

/// Both ways to hang, each compared with the same bridge while no call waits for the tenth server.
pub(crate) fn hanging(options: &Options) -> Vec<Row> {
    let servers = Servers::start();
    let deaf = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("failed to bind");
    let deaf = (deaf.local_addr().expect("a bound socket"), deaf);
    let ways = [
        ("answers no call", servers.tenth, Some(servers.tenth)),
        ("accepts connections and reads nothing", deaf.0, None),
    ];
    let mut rows = Vec::new();
    for (what, tenth, stats) in ways {
        let mut bridge = Crowd::start(&servers, tenth, stats);
        let [quiet, hanging] = bridge.measure(options);
        rows.extend(compare(what, quiet, hanging, &bridge));
    }
    rows
}

fn compare(what: &str, quiet: Series, hanging: Series, bridge: &Crowd) -> Vec<Row> {
    let p99 = |sample: &Sample| sample.p99_ns.max(1) as f64;
    let pairs = quiet.samples.iter().zip(&hanging.samples);
    let ratios: Vec<f64> = pairs
        .map(|(quiet, hanging)| p99(hanging) / p99(quiet))
        .collect();
    let name = |state: &str| format!("{CLIENTS} clients of 10 servers, p99 of nine, {state}");
    let ratio = Cell {
        subject: Subject::Bowline.name(),
        value: Spread::of(ratios),
        ratio: None,
        pace: None,
    };
    let moved = Row {
        cells: vec![ratio],
        ..Row::plain(
            name(&format!("the tenth {what}, compared with before")),
            "times",
            Some(Goal::Value(1.1)),
            &[],
        )
    };
    let memory = machine::resident_kib(bridge.program.id()) as f64 * 1024.0 / 1e6;
    let memory = [(Subject::Bowline, memory)];
    let rows = vec![
        Row::p99(name("no call to the tenth"), &[quiet]),
        Row::p99(name(&format!("the tenth {what}")), &[hanging]),
        moved,
        Row::plain(
            format!("{CLIENTS} clients of 10 servers, the tenth {what}"),
            "MB resident",
            None,
            &memory,
        ),
    ];
    rows.into_iter().map(Row::of_bridges).collect()
}

/// Nine servers that answer, and one whose slow tool does not.
struct Servers {
    _programs: Vec<Program>,
    nine: Vec<SocketAddr>,
    tenth: SocketAddr,
}

impl Servers {
    fn start() -> Self {
        let setting = ProcessSetting {
            arguments: &SERVER_ARGUMENTS,
            ..ProcessSetting::LOAD
        };
        let started = (0..10).map(|_| Program::serve(Subject::Raw, setting));
        let (programs, mut nine): (Vec<_>, Vec<_>) = started.unzip();
        let tenth = nine.pop().expect("ten servers");
        Self {
            _programs: programs,
            nine,
            tenth,
        }
    }
}

/// A bridge and its clients.
struct Crowd {
    program: Program,
    address: SocketAddr,
    /// The clients of the nine servers.
    load: HttpLoad,
    /// The tenth server, if it counts the calls that wait.
    stats: Option<SocketAddr>,
}

impl Crowd {
    fn start(servers: &Servers, tenth: SocketAddr, stats: Option<SocketAddr>) -> Self {
        let all = servers.nine.iter().chain([&tenth]).enumerate();
        let all = all.map(|(index, address)| {
            let url = format!("http://{address}/mcp");
            (format!("s{index}"), serde_json::json!({ "url": url }))
        });
        let all: serde_json::Map<_, _> = all.collect();
        let config = serde_json::json!({ "mcpServers": all });
        let file = config_file("servers.json", &config).expect("a configuration file");
        let port = free_port().expect("a free port");
        let mut command = bowline_command(port);
        let mut program = Program::start_silent(command.arg("--config").arg(file), Core::Test);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        wait_until_listening(&mut program, address).expect("a bridge");
        let calls = TOOLS.map(|tool| Message::call(tool, r#"{"text":"hello"}"#, "hello"));
        let each = calls.iter().cycle().take(CLIENTS - WAITING);
        Self {
            program,
            address,
            load: HttpLoad::open_each(address, each, Era::Modern),
            stats,
        }
    }

    /// Runs turns without and with calls that wait for the tenth server.
    fn measure(&mut self, options: &Options) -> [Series; 2] {
        let mut both = [Vec::new(), Vec::new()];
        let _ = self.turn(options);
        for _ in 0..2 * options.rounds() {
            both[0].push(self.turn(options));
            let waiting = self.call_tenth();
            both[1].push(self.turn(options));
            drop(waiting);
            self.wait_until_waiting(0);
        }
        both.map(|samples| Series {
            subject: Subject::Bowline,
            samples,
        })
    }

    fn turn(&mut self, options: &Options) -> Sample {
        self.load.reconnect();
        let (id, window) = (self.program.id(), 2 * options.window());
        self.load.measure_in_turn(id, window, IN_FLIGHT)
    }

    /// Sends the calls that are not answered. Closing the connections cancels them.
    fn call_tenth(&self) -> Vec<TcpStream> {
        let call = Message::call("s9__slow", r#"{"ms":600000}"#, "");
        let (request, _) = call.http(&ProtocolContext::Modern);
        let call = |_| {
            let mut stream = connect(self.address);
            stream.write_all(&request).expect("a request");
            stream
        };
        let waiting = (0..WAITING).map(call).collect();
        self.wait_until_waiting(WAITING as u64);
        waiting
    }

    /// Waits until this many calls wait in the tenth server.
    fn wait_until_waiting(&self, count: u64) {
        let Some(stats) = self.stats else {
            // Nothing counts them: they wait for the first answer of the server.
            return thread::sleep(ARRIVAL_TIME);
        };
        let deadline = Instant::now() + STATS_TIMEOUT;
        loop {
            let now = waiting_calls(stats);
            if now == Some(count) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "expected {count} calls in the tenth server, got {now:?}"
            );
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Returns how many slow calls a server has started and neither completed nor cancelled.
fn waiting_calls(server: SocketAddr) -> Option<u64> {
    #[derive(serde::Deserialize)]
    struct Response {
        result: ToolResult,
    }
    #[derive(serde::Deserialize)]
    struct ToolResult {
        content: [Text; 1],
    }
    #[derive(serde::Deserialize)]
    struct Text {
        text: String,
    }
    #[derive(serde::Deserialize)]
    struct Stats {
        started: u64,
        cancelled: u64,
        completed: u64,
    }
    let response = send_one(server, &Message::call("stats", "{}", ""));
    let response: Response = serde_json::from_str(&response).ok()?;
    let [Text { text }] = response.result.content;
    let stats: Stats = serde_json::from_str(&text).ok()?;
    Some(stats.started - stats.cancelled - stats.completed)
}

const CLIENTS: usize = 1_000;
/// The clients of the tenth server.
const WAITING: usize = CLIENTS / 10;
/// The calls to the nine servers that are in flight at a time. With as many as there are clients, the latencies would
/// show the length of the queue before a busy processor.
const IN_FLIGHT: usize = 60;
/// The tools of the nine servers.
const TOOLS: [&str; 9] = [
    "s0__tool_0",
    "s1__tool_0",
    "s2__tool_0",
    "s3__tool_0",
    "s4__tool_0",
    "s5__tool_0",
    "s6__tool_0",
    "s7__tool_0",
    "s8__tool_0",
];
const STATS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long calls may take to reach a server that does not count them.
const ARRIVAL_TIME: Duration = Duration::from_millis(100);
