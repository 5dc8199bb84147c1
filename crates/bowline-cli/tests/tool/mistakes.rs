//! Mistakes at the command line: what each one prints, and that every command that is suggested works.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::support::{BOWLINE, Ended, HttpFixture, TempDir, in_time};

/// How a suggested command ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Works {
    /// With exit code 0.
    Ends,
    /// The doctor may find something, which is what it is for.
    Finds,
    /// It serves until it is stopped.
    Serves,
}
use Works::{Ends, Finds, Serves};

/// A command line, a part of the message, and the variant of `Suggestion` with how it works; `None` for a mistake whose
/// message says all.
type Mistake = (&'static str, &'static str, Option<(&'static str, Works)>);

/// `{url}`, `{address}` and `{root}` are those of a server.
const MISTAKES: &[Mistake] = &[
    // The command.
    (
        "dance",
        "unrecognized subcommand 'dance'",
        Some(("Help", Ends)),
    ),
    (
        "lss {url}",
        "unrecognized subcommand 'lss'",
        Some(("OtherCommand", Ends)),
    ),
    (
        "tools {url}",
        "unrecognized subcommand 'tools'",
        Some(("OtherCommand", Ends)),
    ),
    (
        "run {url} add a=1 b=2",
        "unrecognized subcommand 'run'",
        Some(("OtherCommand", Ends)),
    ),
    (
        "{url}",
        "unrecognized subcommand",
        Some(("ListServer", Ends)),
    ),
    (
        "show",
        "required arguments were not provided: <FILE>",
        Some(("Help", Ends)),
    ),
    // Options.
    (
        "ls {url} --nonsense",
        "unexpected argument '--nonsense'",
        Some(("Help", Ends)),
    ),
    (
        "ls {url} --connect-timeouts 5s",
        "'--connect-timeouts'",
        Some(("OtherOption", Ends)),
    ),
    (
        "ls {url} --connect-timeouts=5s",
        "'--connect-timeouts'",
        Some(("OtherOption", Ends)),
    ),
    (
        "ls {url} -H X-Tenant:a",
        "unexpected argument '-H'",
        Some(("OtherOption", Ends)),
    ),
    (
        "ls -e A=1 -- bowline serve-demo",
        "unexpected argument '-e'",
        Some(("OtherOption", Ends)),
    ),
    (
        "bridge --port 0 -- bowline serve-demo",
        "unexpected argument '--port'",
        Some(("OtherOption", Serves)),
    ),
    (
        "ls {url} --connect-timeout soon",
        "expected a time such as `90s`",
        Some(("Help", Ends)),
    ),
    (
        "ls {url} --protocol-version 2024",
        "expected one of 2026-07-28, 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05",
        Some(("Help", Ends)),
    ),
    (
        "ls {url} --protocol-version latest",
        "got `latest`",
        Some(("Help", Ends)),
    ),
    (
        "call {url} add a=1 b=2 --repeat 0",
        "expected a number of at least 1, got `0`",
        Some(("Help", Ends)),
    ),
    (
        "call {url} add a=1 b=2 --log-level loud",
        "expected debug, info, warning",
        Some(("Help", Ends)),
    ),
    (
        "ls {url} --short --schema",
        "cannot be used with",
        Some(("Help", Ends)),
    ),
    (
        "completions tcsh",
        "possible values: bash",
        Some(("Help", Ends)),
    ),
    (
        "ls {url} --header foo",
        "expected --header 'Name: value'",
        None,
    ),
    (
        "ls {url} --env A=1",
        "are for a command, not for a URL",
        None,
    ),
    (
        "ls cursor:demo --header A:b",
        "are for a server at a URL",
        None,
    ),
    (
        "check --allow nonsense {recording}",
        "unknown rule `nonsense`",
        Some(("ListRules", Ends)),
    ),
    // The server.
    ("ls", "expected a server", Some(("Servers", Ends))),
    (
        "ls nonsense",
        "no host has a server `nonsense`",
        Some(("Servers", Ends)),
    ),
    (
        "ls demmo",
        "no host has a server `demmo`",
        Some(("OtherServer", Ends)),
    ),
    (
        "ls twice",
        "several hosts have a server `twice`",
        Some(("OtherServer", Ends)),
    ),
    (
        "ls mcp.json",
        "neither a recording nor the name of a server",
        Some(("ServerOfFile", Ends)),
    ),
    (
        "ls mcp.json#dem",
        "mcp.json has no server `dem`",
        Some(("OtherServer", Ends)),
    ),
    ("ls missing.json#demo", "missing.json: no such file", None),
    (
        "ls {address}/mcp",
        "expected a URL with http:// or https://",
        Some(("WithScheme", Ends)),
    ),
    (
        "tap {address}/mcp --http 0",
        "expected http:// or https://",
        Some(("WithScheme", Serves)),
    ),
    (
        "ls ftp://127.0.0.1/mcp",
        "expected a URL with http:// or https://",
        Some(("Help", Ends)),
    ),
    (
        "ls {root}",
        "no MCP endpoint at `/`; it is at `/mcp`",
        Some(("OtherPath", Ends)),
    ),
    (
        "ls {url} {url}",
        "unexpected argument",
        Some(("Help", Ends)),
    ),
    ("ls {closed}", "Connection refused", None),
    (
        "ls http://nonsense.invalid/mcp",
        "failed to connect to http://nonsense.invalid/mcp",
        None,
    ),
    (
        "ls {forbidden}",
        "unexpected HTTP status 403 Forbidden",
        Some(("Doctor", Finds)),
    ),
    // Commands that start a server.
    (
        "ls bowline serve-demo",
        "unexpected argument 'serve-demo'",
        Some(("AfterHyphens", Ends)),
    ),
    (
        "ls bowline serve-demo --transport stdio",
        "unexpected argument",
        Some(("AfterHyphens", Ends)),
    ),
    (
        "ping -c 1 bowline-server",
        "is a command, and no name of a server",
        Some(("AfterHyphens", Ends)),
    ),
    (
        "bridge bowline serve-demo",
        "unexpected argument 'serve-demo'",
        Some(("AfterHyphens", Serves)),
    ),
    (
        "ls -- 'bowline serve-demo'",
        "its arguments must be separate words",
        Some(("SplitCommand", Ends)),
    ),
    (
        "ls cursor:split",
        "its arguments must be separate words",
        Some(("SplitCommand", Finds)),
    ),
    (
        "ls -- nonsense-server",
        "not found in PATH; install it",
        None,
    ),
    (
        "call bowline serve-demo add",
        "is a command, and no name of a server",
        None,
    ),
    // Tools, resources and prompts.
    (
        "call {url}",
        "expected the name of a tool",
        Some(("ListTools", Ends)),
    ),
    (
        "call {url} nonsense",
        "has no tool `nonsense`",
        Some(("ListTools", Ends)),
    ),
    (
        "call {url} ad a=1 b=2",
        "has no tool `ad`",
        Some(("OtherItem", Ends)),
    ),
    (
        "call ad a=1 b=2 -- bowline serve-demo",
        "has no tool `ad`",
        Some(("OtherItem", Ends)),
    ),
    (
        "call add a=1 b=2",
        "expected a server in front of `add`, got none",
        Some(("Servers", Ends)),
    ),
    (
        "call {url} add --a 1 --b 2",
        "unexpected argument '--a'",
        Some(("KeyValues", Ends)),
    ),
    (
        "call {url} add --a=1 --b=2 --json",
        "unexpected argument '--a'",
        Some(("KeyValues", Ends)),
    ),
    (
        r#"call {url} add '{"a":1,"b":2}'"#,
        "expected key=value",
        Some(("JsonArguments", Ends)),
    ),
    (
        "call {url} add 1 2",
        "expected key=value, got `1`",
        Some(("ShowTool", Ends)),
    ),
    (
        "call {url} add --args '[1]'",
        "expected a JSON object, got another JSON value",
        Some(("ShowTool", Ends)),
    ),
    (
        "call {url} add --args '{'",
        "expected a JSON object, got invalid JSON",
        Some(("ShowTool", Ends)),
    ),
    ("call {url} add a=1", "missing `b`", None),
    (
        "call {url} add A=1 b=2",
        "no parameter `A`; did you mean `a`?",
        None,
    ),
    (
        "call {url} slow seconds=abc",
        "expected number, got `abc`",
        None,
    ),
    (
        "ls {url} --name ech",
        "nothing that is called `ech`",
        Some(("OtherItem", Ends)),
    ),
    (
        "prompt {url} greets name=x",
        "has no prompt `greets`",
        Some(("OtherItem", Ends)),
    ),
    ("prompt {url} greet", "missing `name`", None),
    (
        "read {url}",
        "expected the URI of one resource",
        Some(("ListTools", Ends)),
    ),
    (
        "complete {url}",
        "expected a prompt or template",
        Some(("ListTools", Ends)),
    ),
    (
        "call {url} ask",
        "stdin is not a terminal",
        Some(("Refuse", Ends)),
    ),
    (
        "call {url} sample prompt=x",
        "stdin is not a terminal",
        None,
    ),
    ("tasks get {url}", "expected the id of a task", None),
    // Files, addresses and consent.
    ("show nonsense.jsonl", "failed to read nonsense.jsonl", None),
    (
        "doctor {recording}",
        "the doctor examines servers, and this is a recording",
        Some(("CheckRecording", Ends)),
    ),
    (
        "bridge --http {address} -- bowline serve-demo",
        "failed to listen on",
        Some(("FreeAddress", Serves)),
    ),
    (
        "mock {recording} --http={address}",
        "failed to listen on",
        Some(("FreeAddress", Serves)),
    ),
    (
        "tap {url} --http {address}",
        "failed to listen on",
        Some(("FreeAddress", Serves)),
    ),
    (
        "servers --check",
        "there is no terminal to ask at",
        Some(("Yes", Finds)),
    ),
    (
        "replay {recording} -- bowline serve-demo",
        "does not declare as read-only: touch",
        Some(("Yes", Ends)),
    ),
    ("new Weather", "not provided: --path", Some(("Help", Ends))),
];

/// A home directory with the configuration of hosts, a working directory, and servers.
struct World {
    home: TempDir,
    values: Vec<(&'static str, String)>,
    _fixture: HttpFixture,
    _closed: tokio::net::TcpSocket,
}

impl World {
    async fn start() -> Self {
        let home = TempDir::new("mistakes");
        let demo = format!(r#"{{"command": "{BOWLINE}", "args": ["serve-demo"]}}"#);
        let other = format!(r#"{{"command": "{BOWLINE}", "args": ["serve-demo", "--report"]}}"#);
        let split = r#"{"command": "bowline serve-demo"}"#;
        let of_cursor =
            format!(r#"{{"mcpServers": {{"demo": {demo}, "twice": {demo}, "split": {split}}}}}"#);
        let of_kiro = format!(r#"{{"mcpServers": {{"twice": {other}}}}}"#);
        home.write(".cursor/mcp.json", &of_cursor);
        home.write(".kiro/settings/mcp.json", &of_kiro);
        home.write("work/.git/HEAD", "");
        home.write(
            "work/mcp.json",
            &format!(r#"{{"mcpServers": {{"demo": {demo}}}}}"#),
        );
        let program = home.0.join("bin/bowline-server");
        home.write(
            "bin/bowline-server",
            &format!("#!/bin/sh\nexec '{BOWLINE}' serve-demo\n"),
        );
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(program, executable).unwrap();
        let fixture = HttpFixture::start().await;
        let root = fixture.url.strip_suffix("/mcp").unwrap().to_owned();
        let address = root.strip_prefix("http://").unwrap().to_owned();
        // Bound, so that no other test gets the port, and not listening.
        let closed = tokio::net::TcpSocket::new_v4().unwrap();
        closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let values = vec![
            ("{url}", fixture.url.clone()),
            ("{root}", root),
            ("{address}", address),
            (
                "{closed}",
                format!("http://{}/mcp", closed.local_addr().unwrap()),
            ),
            ("{forbidden}", forbidding_server().await),
            ("{recording}", "a.jsonl".to_owned()),
        ];
        let world = Self {
            home,
            values,
            _fixture: fixture,
            _closed: closed,
        };
        let record = "bowline call touch -- bowline tap -q --record a.jsonl -- bowline serve-demo";
        let recorded = world.run(record).await;
        assert_eq!(recorded.code, Some(0), "{recorded:?}");
        world
    }

    /// Returns a command line for a shell with the addresses of the servers.
    fn line(&self, words: &str) -> String {
        let filled = (self.values.iter()).fold(words.to_owned(), |text, (name, value)| {
            text.replace(name, value)
        });
        format!("bowline {filled}")
    }

    fn command(&self, line: &str) -> Command {
        let path = std::env::var("PATH").unwrap();
        let own = Path::new(BOWLINE).parent().unwrap();
        let path = format!(
            "{}:{}:{path}",
            own.display(),
            self.home.0.join("bin").display()
        );
        let mut command = Command::new("sh");
        // `exec`, so that the process that is stopped is not the shell.
        command
            .args(["-c", &format!("exec {line}")])
            .current_dir(self.home.0.join("work"))
            .env("PATH", path)
            .env("HOME", &self.home.0)
            .env("BROWSER", "true")
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("CODEX_HOME")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn run(&self, line: &str) -> Ended {
        let output = self.command(line).output().await.unwrap();
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs a suggested command, and fails unless it works.
    async fn try_out(&self, line: &str, works: Works) {
        if works == Serves {
            let mut serving = self.command(line).spawn().unwrap();
            let mut errors = BufReader::new(serving.stderr.take().unwrap()).lines();
            let mut output = BufReader::new(serving.stdout.take().unwrap()).lines();
            let mut printed = Vec::new();
            while let Some(next) = tokio::select! {
                biased; // in no order that matters
                next = errors.next_line() => next.unwrap(),
                Ok(Some(next)) = output.next_line() => Some(next),
            } {
                if next.contains("listening on") || next.starts_with("READY ") {
                    serving.kill().await.unwrap();
                    return;
                }
                printed.push(next);
            }
            panic!("{line}: {printed:?}");
        }
        let ended = self.run(line).await;
        let works = ended.code == Some(0) || (works == Finds && ended.code == Some(6));
        assert!(works, "{line}: {ended:?}");
    }
}

/// Starts a server that refuses every request for a reason that no token changes.
async fn forbidding_server() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let refuse = || async {
        (
            http::StatusCode::FORBIDDEN,
            "this Host is not allowed\u{1b}[2J",
        )
    };
    let app = axum::Router::new().fallback(refuse);
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

/// Returns the names of the variants of `Suggestion`.
fn variants() -> BTreeSet<String> {
    let source = include_str!("../../src/suggestion.rs");
    let (_, body) = source.split_once("pub(crate) enum Suggestion {\n").unwrap();
    let (body, _) = body.split_once("\n}\n").unwrap();
    let lines = body
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("//"));
    let is_letter = |it: char| it.is_ascii_alphanumeric();
    lines
        .map(|line| line.split(|it| !is_letter(it)).next().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn each_mistake_is_named_and_every_suggested_command_works() {
    let world = in_time(World::start()).await;
    let (mut tried, mut suggested) = (BTreeSet::new(), 0);
    for (words, message, expected) in MISTAKES {
        in_time(async {
            let line = world.line(words);
            let ended = world.run(&line).await;
            let printed = &ended.stderr;
            assert!(!matches!(ended.code, Some(0) | None), "{line}: {ended:?}");
            assert!(printed.contains(message), "{line}: {printed}");
            // `servers --check` lists first what it would run.
            let is_voice = printed.lines().any(|line| line.starts_with("bowline: "));
            assert!(
                is_voice && !printed.lines().any(|line| line.starts_with("error: ")),
                "one voice: {line}: {printed}"
            );
            assert!(
                !printed.contains("tip: ") && !printed.contains('\u{1b}'),
                "{line}: {printed}"
            );
            assert!(!printed.contains("::"), "a name of Rust: {line}: {printed}");
            let of = |prefix| {
                printed
                    .lines()
                    .filter_map(move |line| line.strip_prefix(prefix))
            };
            assert!(
                of("hint: ").all(|hint| !hint.contains("bowline ")),
                "{line}: a command in prose: {printed}"
            );
            let commands: Vec<&str> = of("try: ").collect();
            let Some((variant, works)) = expected else {
                assert!(commands.is_empty(), "{line}: {printed}");
                return;
            };
            let [command] = commands[..] else {
                panic!("{line}: expected one command to try: {printed}");
            };
            assert!(command.starts_with("bowline "), "{line}: {printed}");
            world.try_out(command, *works).await;
            tried.insert((*variant).to_owned());
            suggested += 1;
        })
        .await;
    }
    assert_eq!(
        tried,
        variants(),
        "each suggestion has a mistake that causes it"
    );
    println!(
        "{} mistakes, {suggested} suggested commands were run",
        MISTAKES.len()
    );
}

/// Returns the names of Rust in the string literals of a source file, such as `Client::connect`.
fn rust_names(source: &str) -> Vec<&str> {
    let (code, _) = source
        .split_once("#[cfg(test)]\nmod ")
        .unwrap_or((source, ""));
    let is_code = |line: &&str| {
        let line = line.trim_start();
        !line.starts_with("//") && !line.starts_with("#[")
    };
    let literals = code
        .lines()
        .filter(is_code)
        .filter(|line| line.contains('"'));
    let quoted = literals.flat_map(|line| line.split('`').skip(1).step_by(2));
    quoted
        .filter(|text| text.contains("::") || text.ends_with("()"))
        .collect()
}

fn source_files(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => source_files(&path, files),
            false => files.push(path),
        }
    }
}

#[test]
fn no_text_that_the_command_prints_names_something_of_rust() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for name in [
        "bowline-cli",
        "bowline-auth",
        "bowline-bridge",
        "bowline-core",
    ] {
        source_files(&crates.join(name).join("src"), &mut files);
    }
    assert!(files.len() > 100, "{}", files.len());
    for file in files {
        let source = std::fs::read_to_string(&file).unwrap();
        let mut names = rust_names(&source);
        names.retain(|name| !FOR_PROGRAMS.contains(name));
        assert!(names.is_empty(), "{}: {names:?}", file.display());
    }
    assert_eq!(
        rust_names("x(\"use `A::b`\");"),
        ["A::b"],
        "the test finds one"
    );
}

/// Names in errors that only a program which uses the libraries can cause.
const FOR_PROGRAMS: &[&str] = &["Bridge::from_config", "wire::stdio"];
