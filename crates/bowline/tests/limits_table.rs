//! The page of the guide with every limit and timeout has the defaults of the code.

use std::path::Path;

use bowline::{Limit, Limits};

/// Returns the default in the row of this name.
fn default_of<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    let mut rows = rows.map(|row| row.split(" | "));
    rows.find_map(|mut cells| {
        let is_named = cells.next()?.trim_matches('`') == name;
        is_named.then(|| cells.next())?
    })
}

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join(path));
    text.expect(path)
}

/// Formats the value of a limit as the page does.
fn formatted(name: &str, value: usize) -> String {
    const KIB: usize = 1024;
    match value {
        usize::MAX => "unlimited".to_owned(),
        _ if name.ends_with("_bytes") && value.is_multiple_of(KIB * KIB) => {
            format!("{} MiB", value / KIB / KIB)
        }
        _ if name.ends_with("_bytes") => format!("{} KiB", value / KIB),
        1_000.. => format!("{},{:03}", value / 1_000, value % 1_000),
        _ => value.to_string(),
    }
}

#[test]
fn every_limit_is_on_the_page_with_its_default() {
    let page = read("docs/timeouts.md");
    let debug = format!("{:?}", Limits::default());
    let value = |limit: Limit| {
        let rest = debug.split_once(&format!(" {}: ", limit.name()));
        let digits = rest.and_then(|(_, rest)| rest.split([',', ' ']).next());
        digits.and_then(|digits| digits.parse().ok())
    };

    for limit in Limit::ALL {
        let name = limit.name();
        let value = value(limit).unwrap_or_else(|| panic!("{name} in {debug}"));
        let expected = formatted(name, value);
        assert_eq!(default_of(&page, name), Some(expected.as_str()), "{name}");
    }
}

/// The name of a row, its default, and the line of the code that sets it.
const TIMES: &[(&str, &str, &str, &str)] = &[
    (
        "Server::drain_delay",
        "5 s",
        "bowline/src/shutdown.rs",
        "DEFAULT_DRAIN_DELAY: Duration = Duration::from_secs(5);",
    ),
    (
        "Server::grace",
        "20 s",
        "bowline/src/shutdown.rs",
        "DEFAULT_GRACE: Duration = Duration::from_secs(20);",
    ),
    (
        "HttpService::keep_alive",
        "15 s",
        "bowline/src/http/server/mod.rs",
        "KEEP_ALIVE: Duration = Duration::from_secs(15);",
    ),
    (
        "HttpService::stream_after",
        "250 ms",
        "bowline/src/http/server/mod.rs",
        "STREAM_AFTER: Duration = Duration::from_millis(250);",
    ),
    (
        "ProgressHeartbeat::after",
        "20 s",
        "bowline/src/layer/progress_heartbeat.rs",
        "after: Duration::from_secs(20),",
    ),
    (
        "ProgressHeartbeat::limit",
        "1 h",
        "bowline/src/layer/progress_heartbeat.rs",
        "limit: Duration::from_secs(60 * 60),",
    ),
    (
        "Legacy::idle_timeout",
        "30 min",
        "bowline/src/http/legacy/mod.rs",
        "DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(30 * 60);",
    ),
    (
        "Legacy::orphan_timeout",
        "5 min",
        "bowline/src/http/legacy/mod.rs",
        "DEFAULT_ORPHAN_TIMEOUT: Duration = Duration::from_secs(5 * 60);",
    ),
    (
        "Legacy::retry",
        "1 s",
        "bowline/src/http/legacy/mod.rs",
        "DEFAULT_RETRY: Duration = Duration::from_secs(1);",
    ),
    (
        "RequestStateKeys::lifetime",
        "1 h",
        "bowline/src/server/request_state.rs",
        "DEFAULT_LIFETIME: Duration = Duration::from_secs(60 * 60);",
    ),
    (
        "timeout of a question to a legacy client",
        "5 min",
        "bowline/src/exchange/input/mod.rs",
        "DEFAULT_CLIENT_REQUEST_TIMEOUT: Duration = Duration::from_secs(5 * 60);",
    ),
    (
        "handlers after the end of stdin",
        "2 s",
        "bowline/src/peer/driver.rs",
        "INPUT_END_GRACE: Duration = Duration::from_secs(2);",
    ),
    (
        "TLS handshake",
        "10 s",
        "bowline/src/http/server/tls.rs",
        "HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);",
    ),
    (
        "head of a request, idle HTTP/1.1 connection",
        "30 s",
        "bowline/src/http/server/serve.rs",
        "HEAD_TIMEOUT: Duration = Duration::from_secs(30);",
    ),
    (
        "body of a request",
        "30 s",
        "bowline/src/http/server/body.rs",
        "READ_TIMEOUT: Duration = Duration::from_secs(30);",
    ),
    (
        "room for a body",
        "5 s",
        "bowline/src/http/server/body.rs",
        "ROOM_TIMEOUT: Duration = Duration::from_secs(5);",
    ),
    (
        "idle HTTP/2 connection",
        "60 s",
        "bowline/src/http/server/serve.rs",
        "HTTP2_IDLE: Duration = Duration::from_secs(60);",
    ),
    (
        "HTTP/2 ping",
        "20 s",
        "bowline/src/http/server/serve.rs",
        "PING_INTERVAL: Duration = Duration::from_secs(20);",
    ),
    (
        "write without progress",
        "30 s",
        "bowline/src/http/server/serve.rs",
        "WRITE_STALL_TIMEOUT: Duration = Duration::from_secs(30);",
    ),
    (
        "writing responses after the grace period",
        "1 s",
        "bowline/src/http/server/serve.rs",
        "WRITE_GRACE: Duration = Duration::from_secs(1);",
    ),
    (
        "Lines::max_line",
        "16 MiB",
        "bowline/src/wire/lines.rs",
        "DEFAULT_MAX_LINE: usize = 16 * 1024 * 1024;",
    ),
    (
        "idle_timeout",
        "60 s",
        "bowline/src/client/config.rs",
        "DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(60);",
    ),
    (
        "connect_timeout",
        "30 s",
        "bowline/src/client/config.rs",
        "DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(30);",
    ),
    (
        "cancels at the end of a connection",
        "4 s",
        "bowline/src/exchange/mod.rs",
        "CANCEL_TIME: Duration = Duration::from_secs(4);",
    ),
    (
        "probe_timeout",
        "5 s",
        "bowline/src/client/config.rs",
        "DEFAULT_PROBE_TIMEOUT: Duration = Duration::from_secs(5);",
    ),
    (
        "retry_unavailable",
        "30 s",
        "bowline/src/http/client/unavailable.rs",
        "DEFAULT_RETRY_UNAVAILABLE: Duration = Duration::from_secs(30);",
    ),
    (
        "ResponseLimits::missed_keep_alives",
        "3",
        "bowline/src/http/client/mod.rs",
        "missed_keep_alives: Some(3),",
    ),
    (
        "ResponseLimits::body",
        "64 MiB",
        "bowline/src/http/client/mod.rs",
        "body: 64 * 1024 * 1024,",
    ),
    (
        "ResponseLimits::event",
        "16 MiB",
        "bowline/src/http/client/mod.rs",
        "event: 16 * 1024 * 1024,",
    ),
    (
        "idle connections of the pool",
        "45 s",
        "bowline/src/http/client/pool.rs",
        "SWEEP_INTERVAL: Duration = Duration::from_secs(45);",
    ),
    (
        "Command::grace",
        "2 s",
        "bowline/src/wire/child/command.rs",
        "DEFAULT_GRACE: Duration = Duration::from_secs(2);",
    ),
    (
        "BridgeBuilder::max_connections",
        "100",
        "bowline-bridge/src/upstream/mod.rs",
        "max_connections: 100,",
    ),
    (
        "BridgeBuilder::max_connections_each",
        "1",
        "bowline-bridge/src/upstream/mod.rs",
        "max_connections_each: 1,",
    ),
    (
        "BridgeBuilder::max_principal_connections",
        "50",
        "bowline-bridge/src/upstream/mod.rs",
        "max_principal_connections: 50,",
    ),
    (
        "capabilities and `clientInfo` of a client",
        "64 KiB",
        "bowline-core/src/era/request.rs",
        "MAX_BYTES: usize = 64 * 1024;",
    ),
    (
        "BridgeBuilder::idle_timeout",
        "5 min",
        "bowline-bridge/src/upstream/mod.rs",
        "idle_timeout: Duration::from_secs(5 * 60),",
    ),
    (
        "BridgeBuilder::call_idle_timeout",
        "1 h",
        "bowline-bridge/src/upstream/mod.rs",
        "call_idle_timeout: Duration::from_secs(60 * 60),",
    ),
    (
        "BridgeBuilder::park_timeout",
        "5 min",
        "bowline-bridge/src/parked/settings.rs",
        "park_timeout: Duration::from_secs(5 * 60),",
    ),
    (
        "heartbeat of the bridge",
        "20 s",
        "bowline-bridge/src/bridge.rs",
        "DEFAULT_HEARTBEAT: Duration = Duration::from_secs(20);",
    ),
    (
        "Tasks::ttl",
        "1 h",
        "bowline-tasks/src/server/mod.rs",
        "ttl: Some(Duration::from_secs(60 * 60)),",
    ),
    (
        "Tasks::poll_interval",
        "1 s",
        "bowline-tasks/src/server/mod.rs",
        "poll_interval: Duration::from_secs(1),",
    ),
    (
        "Tasks::lease",
        "6 s",
        "bowline-tasks/src/server/mod.rs",
        "lease: Duration::from_secs(6),",
    ),
];

#[test]
fn every_time_on_the_page_is_that_of_the_code() {
    let page = read("docs/timeouts.md");

    for (name, default, file, line) in TIMES {
        let source = read(&format!("crates/{file}"));
        assert!(
            source.contains(line),
            "{name}: `{line}` is not in {file}; change docs/timeouts.md and this test"
        );
        assert_eq!(default_of(&page, name), Some(*default), "{name}");
    }
}

#[test]
fn every_row_has_a_default_a_reason_and_a_metric() {
    let page = read("docs/timeouts.md");
    let mut rows = 0;

    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 4, "{row}");
        assert!(cells.iter().all(|cell| !cell.is_empty()), "{row}");
        rows += 1;
    }

    assert!(rows > 60, "{rows} rows");
}
