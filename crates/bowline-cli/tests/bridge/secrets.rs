//! Secrets in the URL of a server reach no client, terminal or log.

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

use crate::support::{BOWLINE, LEGACY, in_time};

/// Every secret contains it.
const SECRET: &str = "s3cret";

/// What a server answers to every request.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// There is no server.
    Unreachable,
    Failure,
    /// To a place at the same server, again and again.
    Redirect,
    RedirectElsewhere,
    Refusal,
    NotJson,
}

impl Answer {
    const ALL: [Self; 6] = [
        Self::Unreachable,
        Self::Failure,
        Self::Redirect,
        Self::RedirectElsewhere,
        Self::Refusal,
        Self::NotJson,
    ];

    fn response(self, port: u16) -> String {
        let key = format!("apiKey={SECRET}-of-server");
        let (status, header) = match self {
            Self::Unreachable => return String::new(),
            Self::Failure => ("500 Internal Server Error", String::new()),
            Self::Redirect => ("307 Temporary Redirect", format!("Location: /mcp/?{key}")),
            Self::RedirectElsewhere => (
                "307 Temporary Redirect",
                format!("Location: http://u:{SECRET}@elsewhere.invalid/mcp?{key}"),
            ),
            Self::Refusal => {
                let url = format!("http://127.0.0.1:{port}/metadata?{key}");
                let header = format!("WWW-Authenticate: Bearer resource_metadata=\"{url}\"");
                ("401 Unauthorized", header)
            }
            Self::NotJson => ("200 OK", "Content-Type: text/html".to_owned()),
        };
        let header = match header.is_empty() {
            true => "X-Empty: yes".to_owned(),
            false => header,
        };
        format!("HTTP/1.1 {status}\r\n{header}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    }
}

/// Starts a server, and returns its port.
async fn server(answer: Answer) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    if matches!(answer, Answer::Unreachable) {
        return port; // which is closed now
    }
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(respond(stream, answer.response(port)));
        }
    });
    port
}

async fn respond(stream: TcpStream, response: String) {
    let mut stream = BufReader::new(stream);
    let (mut line, mut body) = (String::new(), 0);
    while stream
        .read_line(&mut line)
        .await
        .is_ok_and(|count| count > 2)
    {
        if let Some(length) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            body = length.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; body];
    if stream.read_exact(&mut body).await.is_ok() {
        let _ = stream.write_all(response.as_bytes()).await;
    }
}

/// A home directory with a configuration file, removed when this is dropped.
struct Home(PathBuf);

impl Home {
    fn new(name: &str, port: u16) -> Self {
        let name = format!("bowline-secrets-{name}-{}", std::process::id());
        let home = Self(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&home.0).unwrap();
        let url =
            format!("http://${{USER_INFO}}@127.0.0.1:{port}/mcp?apiKey=${{API_KEY}}#${{API_KEY}}");
        let file = json!({"mcpServers": {"search": {"url": url}}});
        std::fs::write(home.0.join(".mcp.json"), file.to_string()).unwrap();
        home
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn url(port: u16) -> String {
    format!(
        "http://user-{SECRET}:{SECRET}@127.0.0.1:{port}/mcp?page=1{SECRET}&apiKey={SECRET}#{SECRET}"
    )
}

/// Runs `bowline`, sends it the requests and waits for as many lines on stdout, and returns all that it printed.
async fn printed(home: &Home, words: &[&str], requests: &[serde_json::Value]) -> String {
    let mut child = Command::new(BOWLINE)
        .args(words)
        .current_dir(&home.0)
        .env("HOME", &home.0)
        .env("XDG_CONFIG_HOME", home.0.join("config"))
        .env("BROWSER", "true") // a program that does nothing
        .env("USER_INFO", format!("user:{SECRET}"))
        .env("API_KEY", SECRET)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let stderr = tokio::spawn(async move {
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes).await.unwrap();
        String::from_utf8(bytes).unwrap()
    });
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut printed = String::new();
    for request in requests {
        let frame = format!("{request}\n");
        stdin.write_all(frame.as_bytes()).await.unwrap();
        assert_ne!(stdout.read_line(&mut printed).await.unwrap(), 0);
    }
    drop(stdin);
    stdout.read_to_string(&mut printed).await.unwrap();
    child.wait().await.unwrap();
    printed + &stderr.await.unwrap()
}

/// Fails if a text contains a secret, or does not show where the server is.
fn check(words: &[&str], answer: Answer, text: &str) {
    assert!(text.contains("127.0.0.1"), "{words:?} {answer:?}: {text}");
    for line in text.lines() {
        assert!(!line.contains(SECRET), "{words:?} {answer:?}: {line}");
    }
}

#[tokio::test]
async fn a_bridge_shows_no_secret_of_a_url_to_clients_or_in_its_log() {
    let requests = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
        json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "x", "arguments": {}}}),
    ];
    for answer in Answer::ALL {
        let port = server(answer).await;
        let home = Home::new(&format!("bridge-{answer:?}"), port);
        let url = url(port);
        for target in [
            &["--no-oauth", &url][..],
            &[&url],
            &["--config", ".mcp.json"],
        ] {
            let words = [&["bridge", "--stdio", "-vv"][..], target].concat();

            let text = in_time(printed(&home, &words, &requests)).await;

            assert!(text.contains(r#""error":"#), "{words:?} {answer:?}: {text}");
            check(&words, answer, &text);
        }
    }
}

#[tokio::test]
async fn a_command_prints_no_secret_of_a_url() {
    for answer in Answer::ALL {
        let port = server(answer).await;
        let home = Home::new(&format!("command-{answer:?}"), port);
        let url = url(port);
        for words in [
            &["ls", "-vv", "--no-oauth", &url][..],
            &["ls", "-vv", &url],
            &["ls", "-vv", ".mcp.json#search"],
            &["call", "-vv", "--no-oauth", &url, "tool"],
            &[
                "call",
                "-vv",
                "--no-oauth",
                "--protocol-version",
                LEGACY,
                &url,
                "tool",
            ],
            &["ping", "-vv", "--no-oauth", &url],
            &["doctor", &url],
            &["doctor", ".mcp.json#search"],
            &["servers", "--check", "--yes"],
            &["servers", "--json"],
        ] {
            let text = in_time(printed(&home, words, &[])).await;

            check(words, answer, &text);
        }
    }
}
