//! The doctor finds nothing wrong with healthy servers.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use bowline::exchange::Dialects;
use bowline::exchange::dialect::HttpTransportKind;
use bowline::http::legacy::Legacy;
use bowline_cli::fixture::Fixture;

use super::http_server::{Answer, Response, legacy, modern, serve};
use super::{BOWLINE, assert_faults, bowline, doctor, doctor_with, shell_server, tls_server};

/// `bowline serve-demo` over HTTP.
struct Demo {
    child: Child,
    url: String,
}

impl Demo {
    fn start() -> Self {
        let mut child = Command::new(BOWLINE)
            .args(["serve-demo", "--transport", "http"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut ready).unwrap();
        let url = ready.trim().strip_prefix("READY ").unwrap().to_owned();
        Self { child, url }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_modern_server_over_http() {
    let examined = doctor(&[&serve(modern)]);

    assert_faults(&examined, &[]);
    assert_eq!(examined.fact("versions"), Some("2026-07-28"));
}

#[test]
fn a_legacy_server_over_http() {
    let examined = doctor(&[&serve(legacy)]);

    assert_faults(&examined, &[]);
    assert_eq!(
        examined.fact("versions"),
        Some("2025-11-25, 2025-06-18, 2025-03-26")
    );
}

#[test]
fn a_modern_server_over_stdio() {
    let examined = doctor(&["--", "sh", "-c", &shell_server::modern("")]);

    assert_faults(&examined, &[]);
    assert_eq!(examined.fact("versions"), Some("2026-07-28"));
}

#[test]
fn a_legacy_server_over_stdio() {
    let examined = doctor(&["--", "sh", "-c", &shell_server::legacy("")]);

    assert_faults(&examined, &[]);
    let all = "2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05";
    assert_eq!(examined.fact("versions"), Some(all));
}

#[test]
fn a_modern_server_over_tls() {
    let server = tls_server::serve("localhost", |request| match request.rpc() {
        // Its connections carry one request at a time.
        "subscriptions/listen" => Answer::Full(Response::error(404, request, -32601)),
        _ => modern(request),
    });
    let url = format!("https://localhost:{}/mcp", server.port);

    let examined = doctor_with(
        &[&url],
        &[("SSL_CERT_FILE", server.authority.to_str().unwrap())],
    );

    assert_faults(&examined, &[]);
}

#[test]
fn the_demonstration_server_over_stdio_stops_a_cancelled_call() {
    let examined = doctor(&["--cancel-wait", "100ms", "--", BOWLINE, "serve-demo"]);

    assert_faults(&examined, &[]);
    let cancel = examined.fact("cancel").unwrap();
    assert!(cancel.contains("`slow`"), "{cancel}");
}

#[test]
fn the_demonstration_server_over_http_stops_a_cancelled_call() {
    let demo = Demo::start();

    let examined = doctor(&[&demo.url]);

    assert_faults(&examined, &[]);
    let cancel = examined.fact("cancel").unwrap();
    assert!(
        cancel.contains("`slow` was ended by closing the request"),
        "{cancel}"
    );
}

#[test]
fn a_server_of_the_oldest_transport() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let oldest = Dialects::only(|it| it.http.transport == HttpTransportKind::HttpSse);
    let service = Fixture::new().server().versions(oldest).http();
    let service = service.legacy(Legacy::sessions().http_sse());
    let bound = runtime.block_on(service.bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}/sse", bound.local_addr());
    runtime.spawn(bound.serve());

    // The revision has no annotations that would show which tools are safe to call.
    let slow = [
        "--cancel-tool",
        "slow",
        "--cancel-args",
        r#"{"seconds": 600}"#,
    ];
    let examined = doctor(&[&slow[..], &["--cancel-wait", "100ms", &url]].concat());

    assert_faults(&examined, &[]);
    assert_eq!(examined.findings["legacy-only"], "note");
    assert_eq!(examined.fact("versions"), Some("2024-11-05"));
    assert_eq!(examined.fact("tools"), Some("13"));
    assert!(examined.fact("limits").is_some(), "{:#}", examined.report);
    let cancel = examined.fact("cancel").unwrap();
    assert!(cancel.contains("`slow`"), "{cancel}");
}

#[test]
fn the_text_fits_into_80_columns() {
    let script = shell_server::modern(
        r#"start() { echo "noise noise noise noise noise noise noise noise"; }"#,
    );
    let patient = [
        "doctor",
        "--timeout",
        "60s",
        "--exit-wait",
        "60s",
        "--slow-start",
        "60s",
    ];
    let words = [&patient[..], &["--", "sh", "-c", &script]].concat();
    let output = bowline(&words, &[("COLUMNS", "80")]);

    let text = String::from_utf8(output.stdout).unwrap();

    assert!(text.contains("error stdout-noise"), "{text}");
    assert!(text.contains("mend: Log to stderr."), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}
