//! Many concurrent streams over real sockets: no mix-ups, no losses, no leaks.
//!
//! `cargo test -p bowline --test http_load -- --nocapture` also prints the memory use.

#![cfg(unix)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline::client::{Change, ChangeFilter, Subscription};
use bowline::http::HttpService;
use bowline::{CallToolResult, Client, Context, Json, Limits, Server, Tool};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};

#[derive(Clone, Copy, Debug)]
enum Http {
    One,
    Two,
}

#[test]
fn a_thousand_concurrent_streams_over_http1_get_their_own_progress_and_leak_nothing() {
    run_alone(a_thousand_streams(Http::One));
}

#[test]
fn a_thousand_concurrent_streams_over_http2_get_their_own_progress_and_leak_nothing() {
    run_alone(a_thousand_streams(Http::Two));
}

#[test]
fn a_notification_reaches_five_thousand_idle_subscriptions_over_http1() {
    run_alone(five_thousand_sockets());
}

#[test]
fn a_notification_reaches_five_thousand_idle_subscriptions_over_http2() {
    run_alone(five_thousand_subscriptions());
}

async fn a_thousand_streams(http: Http) {
    let many = limit_by_open_files(1000);
    let service = Server::new("load", "1.0.0").tool(barrier_tool(many)).http();
    let url = serve(&service).await;
    let before = tasks();
    let mut memory_after = Vec::new();

    for _ in 0..ROUNDS {
        let clients = clients(&url, http, many).await;
        call_barrier_tool(&clients, many).await;
        close(clients).await;
        until("no request is in flight", || service.in_flight() == 0).await;
        until("every task has ended", || tasks() <= before).await;
        memory_after.push(memory());
    }

    eprintln!("{many} streams with progress over {http:?}: {memory_after:?} KiB after each round");
    // The allocator keeps some memory of the first rounds; a leak would add to it in every round.
    let (settled, last) = (memory_after[ROUNDS - 3], memory_after[ROUNDS - 1]);
    assert!(
        last < settled + settled / 4 + 8 * 1024,
        "memory use grows: {memory_after:?}"
    );
}

/// A tool whose handlers wait until `many` of them run. Progress and result contain the number of the call.
fn barrier_tool(many: usize) -> Tool {
    let (running, all_running_notify) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let object = json!({"type": "object"});
    Tool::raw("barrier", object, move |arguments: Json, cx: Context| {
        let (running, all_running_notify) = (running.clone(), all_running_notify.clone());
        async move {
            let arguments: Value = arguments.decode().unwrap();
            let nth = arguments["nth"].as_f64().unwrap();
            let all_running = all_running_notify.notified();
            cx.progress(nth);
            if (running.fetch_add(1, Ordering::SeqCst) + 1).is_multiple_of(many) {
                all_running_notify.notify_waiters();
            } else {
                all_running.await;
            }
            for step in 1..=STEPS {
                cx.progress(nth + f64::from(step) / 8.0);
                tokio::task::yield_now().await;
            }
            Ok(CallToolResult::text(format!("{nth}")))
        }
    })
}

async fn call_barrier_tool(clients: &[Client], many: usize) {
    let calls = (0..many).map(|nth| {
        let client = &clients[nth % clients.len()];
        let (report, mut reports) = mpsc::unbounded_channel();
        let call = client
            .call_tool("barrier", json!({"nth": nth}))
            .on_progress(move |progress| report.send(progress.progress).unwrap())
            .idle_timeout(LONG);
        let call = call.into_future();
        tokio::spawn(async move {
            let reply = call.await.unwrap();
            let mut received = Vec::new();
            while let Ok(report) = reports.try_recv() {
                received.push(report);
            }
            (reply.text(), received)
        })
    });
    let calls: Vec<_> = calls.collect();
    for (nth, call) in (0_u32..).zip(calls) {
        let (text, received) = call.await.unwrap();
        let expected: Vec<f64> = (0..=STEPS)
            .map(|step| f64::from(nth) + f64::from(step) / 8.0)
            .collect();
        assert_eq!(text, nth.to_string());
        assert_eq!(received, expected);
    }
}

/// Bowline clients: a few connections with many streams each.
async fn five_thousand_subscriptions() {
    let many = 5000;
    let server = Server::new("load", "1.0.0").tool(barrier_tool(1));
    let service = server.http();
    let url = serve(&service).await;
    let clients = clients(&url, Http::Two, many).await;
    let before = memory();

    let mut subscribing = Vec::new();
    for nth in 0..many {
        let subscribe = clients[nth % clients.len()].subscribe(ChangeFilter::new().tools());
        subscribing.push(tokio::spawn(subscribe.into_future()));
    }
    let mut subscriptions: Vec<Subscription> = Vec::new();
    for subscribing in subscribing {
        subscriptions.push(subscribing.await.unwrap().unwrap());
    }
    let per_stream = memory().saturating_sub(before) as f64 / many as f64;
    assert_eq!(service.in_flight(), many);
    server.changed().tools();

    for subscription in &mut subscriptions {
        let change = subscription.next().await.unwrap();
        assert_eq!(change, Some(Change::Tools));
    }
    eprintln!("{many} subscriptions over HTTP/2: {per_stream:.1} KiB each, at both ends together");
    drop(subscriptions);
    until("no request is in flight", || service.in_flight() == 0).await;
    close(clients).await;
}

/// Raw sockets, so that the tasks and the memory counted are those of the server.
async fn five_thousand_sockets() {
    let many = limit_by_open_files(5000);
    let limits = Limits {
        // The last 64th answers probes only.
        connections: many + many / 63 + 1,
        ..Limits::default()
    };
    let server = Server::new("load", "1.0.0")
        .tool(barrier_tool(1))
        .limits(limits);
    let service = server.http();
    let url = serve(&service).await;
    let listen = listen_request();
    let before = (tasks(), memory());

    let mut sockets = Vec::new();
    for _ in 0..many {
        let mut socket = TcpStream::connect(authority(&url)).await.unwrap();
        socket.write_all(listen.as_bytes()).await.unwrap();
        sockets.push(socket);
    }
    for socket in &mut sockets {
        read_until(socket, "subscriptions/acknowledged").await;
    }
    let per_stream = memory().saturating_sub(before.1) as f64 / many as f64;
    assert_eq!(service.in_flight(), many);
    server.changed().tools();

    for socket in &mut sockets {
        read_until(socket, "tools/list_changed").await;
    }
    eprintln!("{many} subscriptions over HTTP/1.1: {per_stream:.1} KiB each, at the server");
    drop(sockets);
    until("no request is in flight", || service.in_flight() == 0).await;
    until("every task has ended", || tasks() <= before.0).await;
}

async fn read_until(socket: &mut TcpStream, text: &str) {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(text) {
        let mut chunk = [0; 1024];
        let read = tokio::time::timeout(LONG, socket.read(&mut chunk)).await;
        let read = read.unwrap_or_else(|_| panic!("no {text} in {seen:?}"));
        match read.unwrap() {
            0 => panic!("the stream ended"),
            read => seen.extend_from_slice(&chunk[..read]),
        }
    }
}

fn listen_request() -> String {
    let version = bowline_core::era::Dialect::LATEST.version;
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {
        "notifications": {"toolsListChanged": true},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }})
    .to_string();
    format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         mcp-protocol-version: {version}\r\nmcp-method: subscriptions/listen\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Runs one test at a time on two threads, because tasks and memory are counted per process.
fn run_alone(test: impl Future<Output = ()>) {
    static LOCK: Mutex<()> = Mutex::new(());
    let _guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(test);
}

/// Limits a number of connections to the open files of this process, which has both ends of each.
fn limit_by_open_files(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let most = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let most = most.map_or(usize::MAX, |most| usize::try_from(most).unwrap());
    wanted.min(most.saturating_sub(100) / 2)
}

async fn serve(service: &HttpService) -> String {
    let bound = service.clone().bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", bound.local_addr());
    tokio::spawn(bound.serve());
    url
}

fn authority(url: &str) -> &str {
    url.trim_start_matches("http://").trim_end_matches("/mcp")
}

/// Enough clients for this number of streams: an HTTP/2 connection has a stream limit.
async fn clients(url: &str, http: Http, streams: usize) -> Vec<Client> {
    let many = match http {
        Http::One => 1,
        Http::Two => streams.div_ceil(STREAMS_EACH),
    };
    let version = bowline_core::era::Dialect::LATEST.version;
    let mut clients = Vec::new();
    for _ in 0..many {
        let connect = Client::connect(url).protocol_version(version);
        let connect = match http {
            Http::One => connect,
            Http::Two => connect.http2(),
        };
        clients.push(connect.await.unwrap());
    }
    clients
}

async fn close(clients: Vec<Client>) {
    for client in clients {
        client.close().await.unwrap();
    }
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let mut again = tokio::time::interval(Duration::from_millis(5));
    let waiting = async {
        while !condition() {
            again.tick().await;
        }
    };
    let waited = tokio::time::timeout(LONG, waiting).await;
    waited.unwrap_or_else(|_| panic!("not true after {LONG:?}: {what}"));
}

fn tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

/// The resident memory of the process in KiB.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or_default()
}

const ROUNDS: usize = 4;
const STEPS: u32 = 4;
/// Somewhat below the stream limit of Bowline's server.
const STREAMS_EACH: usize = 250;
const LONG: Duration = Duration::from_secs(60);
