//! `bowline bridge` as a process, between clients and servers that are processes too. They use a shell and signals.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may panic, too"
)]

mod auth;
mod killed;
mod killed_peers;
mod pins;
mod restarted;
mod secrets;
mod sign_in;
mod support;

use bowline::client::Host;
use bowline::types::ElicitResult;
use bowline::wire::Command;
use bowline::{Client, Error};
use serde_json::json;
use support::{BOWLINE, LEGACY, MODERN, Program, in_time, wait_for_exit};
use tokio::io::AsyncReadExt as _;

/// A stdio server that reports what it sees.
const FIXTURE: [&str; 3] = [BOWLINE, "serve-demo", "--report"];

#[tokio::test]
async fn clients_of_both_eras_call_a_stdio_server_over_http_and_a_dropped_call_stops_its_handler() {
    in_time(async {
        for version in [MODERN, LEGACY] {
            let (mut bridge, url) = Program::bridge_to(&FIXTURE).await;
            let client = Client::connect(&url).protocol_version(version);
            let client = client.await.unwrap();

            let sum = client.call_tool("add", json!({"a": 1, "b": 2})).await;
            let slow = client.call_tool("slow", json!({"seconds": 600})).start();
            let slow = tokio::spawn(slow);
            bridge.counts(|counts| counts.active == 1).await;
            slow.abort();

            assert_eq!(sum.unwrap().text(), "3", "{version}");
            bridge.counts(|counts| counts.cancelled == 1).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_question_of_a_stdio_server_reaches_clients_of_both_eras() {
    in_time(async {
        for version in [MODERN, LEGACY] {
            let (_bridge, url) = Program::bridge_to(&FIXTURE).await;
            let answer = |_| async { ElicitResult::accept(json!({"name": "Ada"})) };
            let client = Client::connect(&url)
                .protocol_version(version)
                .host(Host::new().elicitation(answer));

            let reply = client.await.unwrap().call_tool("ask", ()).await.unwrap();

            assert_eq!(reply.text(), "accepted:Ada", "{version}");
        }
    })
    .await;
}

#[tokio::test]
async fn the_oldest_clients_find_http_sse() {
    in_time(async {
        let (_bridge, url) = Program::bridge_to(&FIXTURE).await;
        let url = url.replace("/mcp", "/sse");

        let client = Client::connect(&url).protocol_version("2024-11-05");
        let reply = client
            .await
            .unwrap()
            .call_tool("echo", json!({"text": "x"}));

        assert_eq!(reply.await.unwrap().text(), "x");
    })
    .await;
}

#[tokio::test]
async fn an_http_server_is_reached_over_stdio_in_both_eras() {
    in_time(async {
        let mut server = Program::start(&["serve-demo", "--transport", "http"]);
        let ready = server.stdout_line().await.unwrap();
        let url = ready.strip_prefix("READY ").unwrap();

        for version in [MODERN, LEGACY] {
            let command = Command::new(BOWLINE).args(["bridge", url]);
            let client = Client::spawn(command).protocol_version(version);
            let client = client.await.unwrap();
            let sum = client.call_tool("add", json!({"a": 1, "b": 2})).await;
            assert_eq!(sum.unwrap().text(), "3", "{version}");
        }
    })
    .await;
}

#[tokio::test]
async fn an_http_server_is_reached_over_http_at_another_path() {
    in_time(async {
        let mut server = Program::start(&["serve-demo", "--transport", "http"]);
        let ready = server.stdout_line().await.unwrap();
        let url = ready.strip_prefix("READY ").unwrap();
        let arguments = ["bridge", url, "--http", "127.0.0.1:0", "--path", "/tools"];

        let mut bridge = Program::start(&arguments);
        let front = bridge.stderr_line("bowline: listening on ").await;
        let client = Client::connect(&front).await.unwrap();
        let reply = client.call_tool("echo", json!({"text": "x"})).await;

        assert!(front.ends_with("/tools"), "{front}");
        assert_eq!(reply.unwrap().text(), "x");
    })
    .await;
}

#[tokio::test]
async fn headers_reach_the_server_with_their_variables_replaced() {
    in_time(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let arguments = ["bridge", &url, "--header", "X-Key: is ${BROWSER}"];
        let mut bridge = Program::start(&arguments);

        let head = tokio::select! {
            head = request_head(&listener) => head,
            answer = bridge.request("initialize", initialize()) => panic!("{answer}"),
        };

        assert!(head.to_lowercase().contains("x-key: is true\r\n"), "{head}");
    })
    .await;
}

#[tokio::test]
async fn the_command_has_the_variables_of_the_options_and_no_others() {
    in_time(async {
        let script = format!("echo \"got $OWN, $BROWSER, $OTHER\" >&2; exec {BOWLINE} serve-demo");
        let options = ["bridge", "--stdio", "--env", "OWN=a=b", "--env", "BROWSER"];
        let mut bridge = Program::start(&[&options[..], &["--", "sh", "-c", &script]].concat());

        bridge.request("initialize", initialize()).await;

        assert_eq!(bridge.stderr_line("got ").await, "a=b, true, ");
    })
    .await;
}

/// A gateway with one child for all its clients passes on the handshake of each, and their ids.
#[tokio::test]
async fn three_clients_one_after_the_other_are_served_through_one_pipe() {
    in_time(async {
        let mut bridge = Program::start(&["bridge", "--stdio", "--", BOWLINE, "serve-demo"]);
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        for (version, capabilities) in [
            (LEGACY, json!({})),
            ("2025-06-18", json!({"roots": {}})),
            (LEGACY, json!({"elicitation": {}})),
        ] {
            let mut opening = initialize();
            opening["protocolVersion"] = json!(version);
            opening["capabilities"] = capabilities.clone();
            let opened = bridge.request("initialize", opening).await;
            bridge.send(&initialized).await;
            let add = json!({"name": "add", "arguments": {"a": 1, "b": 2}});
            let sum = bridge.request("tools/call", add).await;
            let ask = json!({"name": "ask", "arguments": {}});
            let asked = bridge.request("tools/call", ask).await;

            assert_eq!(opened["result"]["protocolVersion"], version);
            assert_eq!(sum["result"]["content"][0]["text"], "3", "{sum}");
            if capabilities["elicitation"].is_null() {
                let is_failure = asked["error"].is_object() || asked["result"]["isError"] == true;
                assert!(is_failure, "{asked}");
                continue;
            }
            assert_eq!(asked["method"], "elicitation/create", "{asked}");
            let accepted = json!({"action": "accept", "content": {"name": "Ada"}});
            let accepted = json!({"jsonrpc": "2.0", "id": asked["id"], "result": accepted});
            bridge.send(&accepted).await;
            let answer = bridge.next_message().await;
            assert_eq!(answer["result"]["content"][0]["text"], "accepted:Ada");
        }
    })
    .await;
}

#[tokio::test]
async fn the_end_of_stdin_ends_the_bridge_and_its_server() {
    in_time(async {
        let mut bridge =
            Program::start(&["bridge", "--stdio", "--", "sh", "-c", &with_pid("exec")]);
        let initialized = bridge.request("initialize", initialize()).await;
        let pid = bridge.stderr_line("pid ").await;

        bridge.close_stdin();
        let status = bridge.exit().await;

        assert!(
            initialized["result"]["serverInfo"].is_object(),
            "{initialized}"
        );
        assert_eq!(status.code(), Some(0));
        assert_eq!(bridge.stdout_line().await, None);
        wait_for_exit(&pid).await;
    })
    .await;
}

#[tokio::test]
async fn sigterm_ends_the_bridge_and_terminates_a_server_that_ignores_the_end_of_its_stdin() {
    // After the end of stdin the shell waits for SIGTERM.
    let script = format!(
        "trap 'echo terminated >&2; exit' TERM; {}; echo waiting >&2; while :; do sleep 0.1; done",
        with_pid("")
    );
    in_time(async {
        for version in [MODERN, LEGACY] {
            let (mut bridge, url) = Program::bridge_to(&["sh", "-c", &script]).await;
            let client = Client::connect(&url).protocol_version(version);
            let client = client.await.unwrap();
            client
                .call_tool("echo", json!({"text": "x"}))
                .await
                .unwrap();
            let pid = bridge.stderr_line("pid ").await;

            bridge.terminate().await;
            bridge.stderr_line("waiting").await;
            bridge.stderr_line("terminated").await;

            assert_eq!(bridge.exit().await.code(), Some(0), "{version}");
            wait_for_exit(&pid).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_second_signal_kills_a_server_that_does_not_exit() {
    in_time(async {
        let (mut bridge, url) = Program::bridge_to(&["sh", "-c", &stubborn()]).await;
        let client = Client::connect(&url).await.unwrap();
        client
            .call_tool("echo", json!({"text": "x"}))
            .await
            .unwrap();
        let pid = bridge.stderr_line("pid ").await;

        bridge.terminate().await;
        bridge.stderr_line("waiting").await;
        bridge.terminate().await;

        assert_eq!(bridge.exit().await.code(), Some(0));
        wait_for_exit(&pid).await;
        let rest = bridge.stderr_rest().await;
        assert!(!rest.contains(&TERMINATED.to_owned()), "{rest:?}");
    })
    .await;
}

/// Returns a server that goes on after the end of its stdin. The orderly end would terminate it, which it reports.
fn stubborn() -> String {
    let serve = with_pid("");
    format!(
        "trap 'echo {TERMINATED} >&2' TERM; {serve}; echo waiting >&2; while :; do sleep 0.1; done"
    )
}

const TERMINATED: &str = "terminated";

#[tokio::test]
async fn a_second_signal_kills_a_server_that_does_not_exit_also_while_a_call_runs() {
    in_time(async {
        let (mut bridge, url) = Program::bridge_to(&["sh", "-c", &stubborn()]).await;
        let client = Client::connect(&url).await.unwrap();
        let pid = bridge.stderr_line("pid ").await;
        let slow = client.call_tool("slow", json!({"seconds": 600}));
        let slow = tokio::spawn(slow.start());
        let echo = client.call_tool("echo", json!({"text": "x"}));
        assert_eq!(echo.await.unwrap().text(), "x");

        // Two of a kind at once may be one.
        bridge.terminate().await;
        bridge.signal("INT").await;

        // Without a third one.
        assert_eq!(bridge.exit().await.code(), Some(0));
        assert!(slow.await.unwrap().is_err());
        wait_for_exit(&pid).await;
        let rest = bridge.stderr_rest().await;
        assert!(!rest.contains(&TERMINATED.to_owned()), "{rest:?}");
    })
    .await;
}

#[tokio::test]
async fn a_command_that_does_not_exist_is_named_in_the_error() {
    in_time(async {
        let mut bridge = Program::start(&["bridge", "--stdio", "--", "no-such-server"]);

        let answer = bridge.request("initialize", initialize()).await;

        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("no-such-server"), "{message}");
        assert!(message.contains("PATH"), "{message}");
    })
    .await;
}

#[tokio::test]
async fn a_command_that_exits_is_answered_with_its_last_lines_of_stderr() {
    in_time(async {
        let exits = ["sh", "-c", "echo 'API_KEY is not set' >&2; exit 3"];
        let mut stdio = Program::start(&[&["bridge", "--stdio", "--"][..], &exits].concat());
        let (_http, url) = Program::bridge_to(&exits).await;

        let answer = stdio.request("initialize", initialize()).await;
        let refused = Client::connect(&url).await.unwrap_err();

        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("API_KEY is not set"), "{message}");
        assert!(message.contains('3'), "{message}");
        let Error::Rpc(refused) = refused else {
            panic!("{refused:?}")
        };
        assert!(refused.message.contains("API_KEY is not set"), "{refused}");
    })
    .await;
}

#[tokio::test]
async fn bad_arguments_are_refused_with_a_sentence_and_exit_code_2() {
    let lines: [(&[&str], &str); 5] = [
        (&["bridge"], "expected a server"),
        (&["bridge", "npx"], "put a command after `--`"),
        (&["bridge", "--loud", "--", "x"], "'--loud'"),
        (&["bridge", "--http", "x", "--", "x"], "ADDRESS:PORT"),
        (
            &[
                "bridge",
                "https://a.example",
                "--header",
                "A: ${NOT_SET_HERE}",
            ],
            "`NOT_SET_HERE` is not set",
        ),
    ];
    in_time(async {
        for (arguments, reason) in lines {
            let mut command = tokio::process::Command::new(BOWLINE);
            let output = command.args(arguments).output().await.unwrap();

            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{stderr}");
            assert!(stderr.contains(reason), "{stderr}");
            assert!(output.stdout.is_empty());
        }
    })
    .await;
}

#[tokio::test]
async fn a_file_is_checked_without_starting_its_servers() {
    let folder = sign_in::Folder::new("check-config");
    let check = async |config: serde_json::Value| {
        let file = folder.write("bridge.json", &config.to_string());
        let mut command = tokio::process::Command::new(BOWLINE);
        command.args(["bridge", "--config", &file, "--check-config"]);
        let output = command.output().await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    in_time(async {
        let started = folder.write("started", "");
        let remove = json!({"command": "rm", "args": [started]});

        let (code, stdout, _) = check(json!({"mcpServers": {"a": remove, "b": remove}})).await;
        assert_eq!(code, Some(0));
        assert!(stdout.ends_with("is valid: a, b\n"), "{stdout}");
        assert!(std::fs::exists(&started).unwrap(), "a server was started");

        let servers = json!({"a": remove});
        let header = json!({"url": "https://b.example", "headers": {"X": "${NOT_SET_HERE}"}});
        let pinned = json!({"command": "a", "bridge": {"pin": "missing/pins.json"}});
        let auth = json!({"issuers": ["https://a.example"], "resource": "no URL"});
        let wrong = [
            (json!({"mcpServers": {}}), "has no server"),
            (json!({"mcpServers": {"b": header}}), "NOT_SET_HERE"),
            (json!({"mcpServers": {"b": pinned}}), "missing"),
            (
                json!({"mcpServers": servers, "bridge": {"auth": auth}}),
                "no URL",
            ),
            (
                json!({"mcpServers": servers, "bridge": {"stateKey": "${NOT_SET_HERE}"}}),
                "NOT_SET_HERE",
            ),
        ];
        for (config, reason) in wrong {
            let (code, stdout, stderr) = check(config).await;
            assert_eq!((code, &*stdout), (Some(1), ""), "{reason}: {stderr}");
            assert!(stderr.contains(reason), "{reason}: {stderr}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_command_that_does_not_answer_is_given_up_after_the_connect_timeout() {
    in_time(async {
        let options = ["bridge", "--http", "127.0.0.1:0", "--connect-timeout", "6s"];
        let silent = ["--", "sh", "-c", "echo busy >&2; exec sleep 600"];
        let mut bridge = Program::start(&[&options[..], &silent].concat());
        let url = bridge.stderr_line("bowline: listening on ").await;

        let client = Client::connect(&url).protocol_version(MODERN);
        let error = client.await.unwrap().call_tool("x", ()).await.unwrap_err();

        let error = error.to_string();
        assert!(error.contains("did not answer within 6s"), "{error}");
        assert!(error.contains("busy"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn an_address_that_others_can_reach_without_a_token_is_warned_about() {
    in_time(async {
        let mut bridge = Program::start(&["bridge", "--http", "0.0.0.0:0", "--", "x"]);
        bridge
            .stderr_line("bowline: everyone who can reach 0.0.0.0:")
            .await;
        bridge.signal("INT").await;
        bridge.exit().await;

        let (mut bridge, _) = Program::bridge_to(&["x"]).await;
        bridge.terminate().await;
        let rest = bridge.stderr_rest().await;
        assert!(
            !rest.iter().any(|line| line.contains("can reach")),
            "{rest:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn an_address_in_use_is_named_in_the_error() {
    in_time(async {
        let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap().to_string();

        let mut bridge = Program::start(&["bridge", "--http", &address, "--", "x"]);
        let error = bridge.stderr_line("bowline: ").await;

        let suggested = bridge.stderr_line("try: ").await;
        assert!(error.contains(&address), "{error}");
        assert!(suggested.contains("--http 127.0.0.1:0 -- x"), "{suggested}");
        assert_eq!(bridge.exit().await.code(), Some(1));
    })
    .await;
}

/// Accepts a connection, and reads the head of its first request.
async fn request_head(listener: &tokio::net::TcpListener) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Returns the shell command that prints its process id and runs the fixture.
fn with_pid(exec: &str) -> String {
    format!("echo pid $$ >&2; {exec} {BOWLINE} serve-demo")
}

fn initialize() -> serde_json::Value {
    json!({
        "protocolVersion": LEGACY,
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    })
}

#[tokio::test]
async fn the_servers_of_a_file_are_served_and_read_again_at_sighup() {
    in_time(async {
        let file = format!(
            "{}/bridge-{}.json",
            env!("CARGO_TARGET_TMPDIR"),
            std::process::id()
        );
        let write = |servers: &[&str]| {
            let server = json!({"command": BOWLINE, "args": ["serve-demo"]});
            let servers: serde_json::Map<_, _> = servers
                .iter()
                .map(|name| ((*name).to_owned(), server.clone()))
                .collect();
            std::fs::write(&file, json!({"mcpServers": servers}).to_string()).unwrap();
        };
        write(&["one", "two"]);
        let mut bridge = Program::start(&["bridge", "--config", &file, "--http", "127.0.0.1:0"]);
        let url = bridge.stderr_line("bowline: listening on ").await;
        let client = Client::connect(&url).await.unwrap();
        let numbers = json!({"a": 1, "b": 2});

        for tool in ["one__add", "two__add"] {
            assert_eq!(
                client.call_tool(tool, &numbers).await.unwrap().text(),
                "3",
                "{tool}"
            );
        }
        write(&["two", "three"]);
        bridge.signal("HUP").await;
        bridge.stderr_line("bowline: read ").await;
        let with_name = std::fs::read_to_string(&file).unwrap();
        let with_name = with_name.replacen('{', r#"{"bridge": {"name": "n"}, "#, 1);
        std::fs::write(&file, with_name).unwrap();
        bridge.signal("HUP").await;
        let unapplied = bridge.stderr_line("bowline: start the bridge anew").await;
        assert_eq!(unapplied, " to apply `bridge.name`");

        let removed = client.call_tool("one__add", &numbers).await;
        let added = client.call_tool("three__add", &numbers).await;
        assert!(removed.is_err(), "{removed:?}");
        assert_eq!(added.unwrap().text(), "3");
        std::fs::write(&file, "{").unwrap();
        bridge.signal("HUP").await;
        let unchanged = "bowline: goes on with the old configuration";
        bridge.stderr_line(unchanged).await;
        let passing = json!({"url": "https://a.example/mcp", "bridge": {"passThrough": true}});
        let auth = json!({"issuers": ["https://a.example"], "resource": "https://b.example/mcp"});
        let passing = json!({"mcpServers": {"two": passing}, "bridge": {"auth": auth}});
        std::fs::write(&file, passing.to_string()).unwrap();
        bridge.signal("HUP").await;
        let why = bridge.stderr_line(unchanged).await;
        assert!(why.contains("`bridge.auth` has changed"), "{why}");
        assert_eq!(
            client.call_tool("two__add", &numbers).await.unwrap().text(),
            "3"
        );
        std::fs::remove_file(&file).unwrap();
    })
    .await;
}

#[tokio::test]
async fn what_the_servers_of_a_file_print_to_stderr_is_passed_on_with_their_names() {
    in_time(async {
        let folder = sign_in::Folder::new("stderr");
        let script = format!("echo started >&2; exec '{BOWLINE}' serve-demo");
        let server = json!({"command": "sh", "args": ["-c", script]});
        let file = json!({"mcpServers": {"noisy": server}}).to_string();
        let file = folder.write("bridge.json", &file);
        let mut bridge = Program::start(&["bridge", "--config", &file, "--http", "127.0.0.1:0"]);
        let url = bridge.stderr_line("bowline: listening on ").await;

        Client::connect(&url).await.unwrap();

        assert_eq!(bridge.stderr_line("noisy: ").await, "started");
    })
    .await;
}

#[tokio::test]
async fn a_file_without_an_enabled_server_is_refused() {
    in_time(async {
        let folder = sign_in::Folder::new("no-servers");
        let disabled = json!({"mcpServers": {"a": {"command": "a", "disabled": true}}});
        for servers in [json!({"mcpServers": {}}), disabled] {
            let file = folder.write("bridge.json", &servers.to_string());
            let mut bridge =
                Program::start(&["bridge", "--config", &file, "--http", "127.0.0.1:0"]);

            let why = bridge.stderr_line("bowline: ").await;

            assert!(why.contains("has no server"), "{why}");
            assert_eq!(bridge.exit().await.code(), Some(1));
        }
    })
    .await;
}

#[cfg(feature = "cluster")]
#[tokio::test]
async fn a_signal_ends_a_bridge_that_waits_for_its_cluster() {
    in_time(async {
        let engine = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", engine.local_addr().unwrap());
        let keys = "07".repeat(32);
        let bridge = ["bridge", "--http", "127.0.0.1:0", "--cluster", &url];
        let server = ["--cluster-keys", &keys, "--", BOWLINE, "serve-demo"];
        let mut bridge = Program::start(&[&bridge[..], &server].concat());
        let (_silent, _) = engine.accept().await.unwrap();

        bridge.terminate().await;

        let why = bridge.stderr_line("bowline: ").await;
        assert!(why.contains("by a signal"), "{why}");
        assert_eq!(bridge.exit().await.code(), Some(1));
    })
    .await;
}
