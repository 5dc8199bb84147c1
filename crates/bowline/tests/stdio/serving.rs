//! Serving over stdin and stdout of every kind: pipes, sockets, files, terminals.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use bowline::Client;
use bowline::wire::Lines;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::programs::{self, std_command};

pub(crate) async fn printing_does_not_reach_the_wire() {
    let (client, mut stderr) = connect().await;

    let printed = client.call_tool("print", ()).await.unwrap();
    let next = client.call_tool("echo", json!({"a": 1})).await.unwrap();

    assert_eq!(
        (printed.text(), next.text()),
        ("printed".into(), r#"{"a":1}"#.into())
    );
    assert_eq!(stderr.recv().await.unwrap(), "a stray line");
    client.close().await.unwrap();
}

pub(crate) async fn a_child_that_inherits_input_and_output_does_not_reach_the_wire() {
    let (client, mut stderr) = connect().await;

    let nested = client.call_tool("nest", ()).await.unwrap();
    let next = client.call_tool("echo", json!({"a": 1})).await.unwrap();

    assert_eq!(
        (nested.text(), next.text()),
        ("exit status: 0".into(), r#"{"a":1}"#.into())
    );
    assert_eq!(stderr.recv().await.unwrap(), "nested read <>");
    client.close().await.unwrap();
}

pub(crate) async fn stdio_can_be_taken_once_per_process() {
    let (client, _) = connect().await;

    let refusal = client.call_tool("take again", ()).await.unwrap();

    assert!(
        refusal.text().contains("once per process"),
        "{}",
        refusal.text()
    );
    client.close().await.unwrap();
}

pub(crate) async fn stdio_can_be_one_socket() {
    let (near, far) = UnixStream::pair().unwrap();
    let mut server = std_command("server");
    server
        .stdin(OwnedFd::from(far.try_clone().unwrap()))
        .stdout(OwnedFd::from(far));
    let mut server = spawn(server);
    near.set_nonblocking(true).unwrap();
    let near = tokio::net::UnixStream::from_std(near).unwrap();

    let client = Client::from_wire(Lines::unix(near)).await.unwrap();
    let reply = client.call_tool("echo", ()).await.unwrap();

    assert_eq!(reply.text(), "{}");
    client.close().await.unwrap();
    assert!(server.wait().await.unwrap().success());
}

pub(crate) async fn stdio_can_be_two_sockets() {
    let (near_input, far_input) = UnixStream::pair().unwrap();
    let (near_output, far_output) = UnixStream::pair().unwrap();
    let mut server = std_command("server");
    server
        .stdin(OwnedFd::from(far_input))
        .stdout(OwnedFd::from(far_output));
    let mut server = spawn(server);
    let [near_input, near_output] = [near_input, near_output].map(|socket| {
        socket.set_nonblocking(true).unwrap();
        tokio::net::UnixStream::from_std(socket).unwrap()
    });

    let client = Client::from_wire(Lines::new(near_output, near_input))
        .await
        .unwrap();
    let reply = client.call_tool("echo", ()).await.unwrap();

    assert_eq!(reply.text(), "{}");
    client.close().await.unwrap();
    assert!(server.wait().await.unwrap().success());
}

pub(crate) async fn stdio_can_be_files_and_every_response_is_written() {
    let (mut input, mut output) = (scratch("input"), scratch("output"));
    for number in 0..100 {
        writeln!(input, "{}", request(number, "echo")).unwrap();
    }
    input.rewind().unwrap();
    let mut server = std_command("server");
    server.stdin(input).stdout(output.try_clone().unwrap());

    let status = spawn(server).wait().await.unwrap();

    let mut answers = String::new();
    output.rewind().unwrap();
    output.read_to_string(&mut answers).unwrap();
    let mut ids: Vec<u64> = answers
        .lines()
        .map(|line| assert_text(line, "{}"))
        .collect();
    ids.sort_unstable();
    assert!(status.success());
    assert_eq!(ids, (0..100).collect::<Vec<_>>());
}

pub(crate) async fn stdio_can_be_a_terminal() {
    let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&main).unwrap();
    unlockpt(&main).unwrap();
    let name = ptsname(&main, Vec::new()).unwrap();
    let mut main = File::from(main).try_clone().unwrap(); // the clone is not inherited
    let terminal = File::options()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    let mut mode = tcgetattr(&terminal).unwrap();
    mode.make_raw(); // otherwise the terminal echoes the input
    tcsetattr(&terminal, OptionalActions::Now, &mode).unwrap();
    let mut server = std_command("server");
    server.stdin(terminal.try_clone().unwrap()).stdout(terminal);
    let mut server = spawn(server);
    let mut answers = BufReader::new(main.try_clone().unwrap());

    let ids = tokio::task::spawn_blocking(move || {
        [7, 8].map(|number| {
            writeln!(main, "{}", request(number, "echo")).unwrap();
            let mut line = String::new();
            answers.read_line(&mut line).unwrap();
            assert_text(&line, "{}")
        })
    });

    // Both handles of the other side of the terminal are dropped now, which ends the input of the server.
    assert_eq!(ids.await.unwrap(), [7, 8]);
    assert!(server.wait().await.unwrap().success());
}

pub(crate) async fn printing_does_not_reach_a_wire_that_is_also_stderr() {
    let (output, far) = io::pipe().unwrap();
    let mut server = std_command("server");
    server
        .stdin(Stdio::piped())
        .stdout(far.try_clone().unwrap())
        .stderr(far);
    let mut server = spawn(server);
    let mut input = server.stdin.take().unwrap();

    for (number, tool) in [(1, "print"), (2, "nest"), (3, "echo")] {
        let line = format!("{}\n", request(number, tool));
        tokio::io::AsyncWriteExt::write_all(&mut input, line.as_bytes())
            .await
            .unwrap();
    }
    drop(input);

    let lines = tokio::task::spawn_blocking(|| BufReader::new(output).lines().collect());
    let lines: io::Result<Vec<String>> = lines.await.unwrap();
    let lines = lines.unwrap();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(
        lines.iter().all(|line| line.contains(r#""jsonrpc":"2.0""#)),
        "{lines:?}"
    );
    assert!(server.wait().await.unwrap().success());
}

pub(crate) async fn sigterm_and_sigint_let_running_handlers_finish() {
    for signal in [Signal::TERM, Signal::INT] {
        let (client, mut stderr) = connect().await;
        let call = client.call_tool("await signal", ()).start();
        let pid = pid_of(&stderr.recv().await.unwrap());

        kill_process(pid, signal).unwrap();

        assert_eq!(call.await.unwrap().text(), "finished", "{signal:?}");
        let error = client.call_tool("echo", ()).await.unwrap_err();
        assert!(error.to_string().contains("exit status: 0"), "{error}");
    }
}

pub(crate) async fn a_server_that_drains_refuses_new_calls_and_takes_cancels() {
    let (client, mut stderr) = connect().await;
    let cancelled = client.call_tool("hang", ()).start();
    let pid = pid_of(&stderr.recv().await.unwrap());
    let finishing = client.call_tool("await drop", ()).start();
    assert_eq!(client.call_tool("echo", ()).await.unwrap().text(), "{}");

    kill_process(pid, Signal::TERM).unwrap();
    // Calls are answered until the server has received the signal.
    let refused = loop {
        if let Err(error) = client.call_tool("echo", ()).await {
            break error;
        }
    };
    let again = client.call_tool("echo", ()).await.unwrap_err();
    drop(cancelled);

    for refused in [refused, again] {
        assert_eq!(
            refused.retry_after(),
            Some(Duration::from_secs(1)),
            "{refused}"
        );
    }
    assert_eq!(
        finishing.await.unwrap().text(),
        "1",
        "handlers that were dropped"
    );
    let error = client.call_tool("echo", ()).await.unwrap_err();
    assert!(error.to_string().contains("exit status: 0"), "{error}");
}

pub(crate) async fn sigterm_and_sigint_let_running_handlers_of_an_http_server_finish() {
    for signal in [Signal::TERM, Signal::INT] {
        an_http_server_finishes_after(signal).await;
    }
}

async fn an_http_server_finishes_after(signal: Signal) {
    let mut command = tokio::process::Command::from(std_command("http_server"));
    let mut server = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let stdout = tokio::io::BufReader::new(server.stdout.take().unwrap());
    let stderr = tokio::io::BufReader::new(server.stderr.take().unwrap());
    let (mut stdout, mut stderr) = (
        tokio::io::AsyncBufReadExt::lines(stdout),
        tokio::io::AsyncBufReadExt::lines(stderr),
    );
    let line = stdout.next_line().await.unwrap().unwrap();
    let (_, url) = line.split_once(' ').unwrap();
    let client = Client::connect(url).await.unwrap();
    let call = tokio::spawn(client.call_tool("await signal", ()).into_future());
    stderr.next_line().await.unwrap();

    kill_process(pid_of(&line), signal).unwrap();

    assert_eq!(call.await.unwrap().unwrap().text(), "finished");
    drop(client);
    assert!(server.wait().await.unwrap().success());
}

/// A client of the server, and the lines that the server writes to stderr.
pub(crate) async fn connect() -> (Client, mpsc::UnboundedReceiver<String>) {
    let (sender, stderr) = mpsc::unbounded_channel();
    let command = programs::command("server")
        .on_stderr(move |line| sender.send(line.to_owned()).unwrap_or_default());
    (Client::spawn(command).await.unwrap(), stderr)
}

/// Parses the process id at the beginning of a line.
pub(crate) fn pid_of(line: &str) -> Pid {
    let pid = line
        .split_whitespace()
        .next()
        .and_then(|pid| pid.parse().ok());
    pid.and_then(Pid::from_raw)
        .unwrap_or_else(|| panic!("no process id in `{line}`"))
}

fn spawn(command: std::process::Command) -> tokio::process::Child {
    tokio::process::Command::from(command)
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// An unlinked temporary file.
fn scratch(name: &str) -> File {
    let path = std::env::temp_dir().join(format!("bowline-{}-{name}", std::process::id()));
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

fn request(id: u64, tool: &str) -> Value {
    json!({
        "jsonrpc": "2.0",
        "id": id,
        "method": "tools/call",
        "params": {
            "name": tool,
            "arguments": {},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1.0.0"},
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    })
}

/// Asserts the text of a response and returns its id.
fn assert_text(line: &str, text: &str) -> u64 {
    let answer: Value = serde_json::from_str(line).unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], text, "{line}");
    answer["id"].as_u64().unwrap()
}
