//! [`ObservedProcess`], a server or a bridge with `--otlp` and `--metrics`.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStderr, Command};

pub(crate) struct ObservedProcess {
    child: Child,
    stderr: Lines<BufReader<ChildStderr>>,
    /// The endpoint of MCP.
    pub(crate) url: String,
    /// The address of `--metrics`.
    metrics: String,
}

impl ObservedProcess {
    pub(crate) async fn serve_demo(otlp: &str) -> Self {
        let serve = ["serve-demo", "--transport", "http", "--drain-delay", "0"];
        let (mut process, mut child) = Self::start(&serve, otlp).await;
        let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = stdout.next_line().await.unwrap().unwrap();
        process.url = ready.strip_prefix("READY ").unwrap().to_owned();
        // Kept open: the process writes to it when it ends.
        tokio::spawn(async move { while let Ok(Some(_)) = stdout.next_line().await {} });
        process.with(child)
    }

    pub(crate) async fn bridge(otlp: &str, server: &str) -> Self {
        let bridge = [
            "bridge",
            "--http",
            "127.0.0.1:0",
            "--drain-delay",
            "0",
            server,
        ];
        let (mut process, child) = Self::start(&bridge, otlp).await;
        process.url = process.line_after("bowline: listening on ").await;
        process.with(child)
    }

    async fn start(words: &[&str], otlp: &str) -> (Starting, Child) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bowline"))
            .args(words)
            .args(["--otlp", otlp, "--metrics", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut starting = Starting {
            stderr: BufReader::new(child.stderr.take().unwrap()).lines(),
            url: String::new(),
            metrics: String::new(),
        };
        starting
            .line_after("bowline: sending spans and metrics to ")
            .await;
        let metrics = starting.line_after("bowline: metrics at http://").await;
        starting.metrics = metrics.strip_suffix("/metrics").unwrap().to_owned();
        (starting, child)
    }

    /// Reads the metrics as Prometheus does.
    pub(crate) async fn scrape(&self) -> String {
        let mut stream = TcpStream::connect(&self.metrics).await.unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, text) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        text.to_owned()
    }

    /// Sends SIGTERM, and waits until the process has ended. Returns the rest of stderr.
    pub(crate) async fn terminate(mut self) -> String {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
        let mut stderr = String::new();
        while let Some(line) = self.stderr.next_line().await.unwrap() {
            stderr.push_str(&line);
            stderr.push('\n');
        }
        assert!(self.child.wait().await.unwrap().success(), "{stderr}");
        stderr
    }
}

/// A process whose addresses are not all known yet.
struct Starting {
    stderr: Lines<BufReader<ChildStderr>>,
    url: String,
    metrics: String,
}

impl Starting {
    /// Returns what follows this text in the next line of stderr.
    async fn line_after(&mut self, text: &str) -> String {
        let line = self.stderr.next_line().await.unwrap().unwrap();
        let rest = line.strip_prefix(text);
        rest.unwrap_or_else(|| panic!("{line}")).to_owned()
    }

    fn with(self, child: Child) -> ObservedProcess {
        ObservedProcess {
            child,
            stderr: self.stderr,
            url: self.url,
            metrics: self.metrics,
        }
    }
}
