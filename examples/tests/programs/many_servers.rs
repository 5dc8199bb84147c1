//! The client of many servers, which is used at a terminal, and ended by Ctrl-C.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::support::{TemporaryFolder, example, in_time, serve, signal};

/// A client in a process: what is typed, and what it prints.
struct ManyServers {
    client: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl ManyServers {
    fn start(servers: &[String]) -> Self {
        let mut client = Command::new(example("many_servers"))
            .args(servers)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdin = client.stdin.take().unwrap();
        let stdout = BufReader::new(client.stdout.take().unwrap()).lines();
        Self {
            client,
            stdin,
            stdout,
        }
    }

    async fn type_line(&mut self, line: &str) {
        self.stdin
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
    }

    /// Returns the next lines, sorted: servers answer in any order.
    async fn printed(&mut self, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.len() < count {
            let line = in_time(self.stdout.next_line()).await.unwrap();
            lines.push(line.unwrap_or_else(|| panic!("only printed {lines:?}")));
        }
        lines.sort();
        lines
    }
}

#[tokio::test]
async fn many_servers_are_called_asked_for_and_started_again() {
    let folder = TemporaryFolder::new("many-servers");
    let (_web, line) = serve("axum", 1).await;
    // A calculator that writes down its process id.
    let (script, pid) = (folder.path("calculator.sh"), folder.path("pid"));
    let calculator = example("calculator");
    let text = format!(
        "echo $$ > {}\nexec {}\n",
        pid.display(),
        calculator.display()
    );
    std::fs::write(&script, text).unwrap();
    let database = folder.path("notes.db");
    let mut many = ManyServers::start(&[
        format!("sum=sh {}", script.display()),
        format!(
            "db={} --db {}",
            example("sqlite").display(),
            database.display()
        ),
        line.replace("listening on ", "web="),
    ]);

    let tools = [
        "db.describe_table",
        "db.execute",
        "db.list_tables",
        "db.query",
        "sum.add",
        "web.add",
    ];
    assert_eq!(many.printed(6).await, tools);

    many.type_line(r#"add {"a": 1, "b": 2}"#).await;
    let printed = many.printed(3).await;
    assert!(printed[0].starts_with("db: failed: "), "{printed:?}");
    assert_eq!(printed[1..], ["sum: 3", "web: 3"]);

    many.type_line(r#"db.execute {"sql": "CREATE TABLE t (a)"}"#)
        .await;
    assert_eq!(
        many.printed(1).await,
        ["Run `CREATE TABLE t (a)` with []? (run)"]
    );
    many.type_line("true").await;
    assert_eq!(many.printed(1).await, ["db: 0 rows changed"]);

    let killed = std::fs::read_to_string(&pid).unwrap();
    signal("-KILL", killed.trim()).await;
    many.type_line(r#"sum.add {"a": 1, "b": 2}"#).await;
    let mut printed = many.printed(1).await;
    // A call that was sent to the killed process fails; one that is made later waits for its successor.
    if printed[0].starts_with("sum: failed: ") {
        many.type_line(r#"sum.add {"a": 1, "b": 2}"#).await;
        printed = many.printed(1).await;
    }
    assert_eq!(printed, ["sum: 3"]);
    assert_ne!(std::fs::read_to_string(&pid).unwrap(), killed);

    signal("-INT", &many.client.id().unwrap().to_string()).await;
    assert_eq!(many.printed(1).await, ["all servers have ended"]);
    assert!(in_time(many.client.wait()).await.unwrap().success());
}

#[tokio::test]
async fn many_servers_show_progress_and_end_with_the_input() {
    let film = example("long_job").display().to_string();
    let mut many =
        ManyServers::start(&[format!("film={film}"), "none=/no/such/program".to_owned()]);
    let printed = many.printed(2).await;
    assert_eq!(printed[0], "film.render");
    assert!(printed[1].starts_with("none: failed: "), "{printed:?}");

    many.type_line(r#"film.render {"frames": 2, "milliseconds": 0}"#)
        .await;
    assert_eq!(
        many.printed(3).await,
        ["film: at 1", "film: at 2", "film: rendered 2 frames"]
    );
    many.type_line("film.render {").await;
    assert_eq!(
        many.printed(1).await,
        ["expected `tool {…}` or `server.tool {…}`"]
    );

    drop(many.stdin);
    let line = in_time(many.stdout.next_line()).await.unwrap();
    assert_eq!(line.as_deref(), Some("all servers have ended"));
}
