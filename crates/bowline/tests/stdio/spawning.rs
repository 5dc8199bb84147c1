//! Child processes: how they exit, how they are killed and restarted, and what they inherit.

use std::collections::BTreeSet;
use std::time::Duration;

use bowline::client::ClientBuilder;
use bowline::exchange::{Answer, CallOptions, Channel, Request};
use bowline::wire::Command;
use bowline::{Client, Error, Json};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;
use tokio::sync::mpsc;

use crate::programs;
use crate::serving::{connect, pid_of};

pub(crate) async fn a_server_exits_when_its_input_ends() {
    let command = programs::command("server").grace(NEVER);
    let client = Client::spawn(command).await.unwrap();

    client.close().await.unwrap();

    // `close` returned, although the grace period is longer than the time limit of a test.
}

pub(crate) async fn dropping_a_call_drops_the_handler_in_the_child() {
    let (client, mut stderr) = connect().await;
    let call = client.call_tool("hang", ()).start();
    stderr.recv().await.unwrap();

    drop(call);

    let dropped = client.call_tool("await drop", ()).await.unwrap();
    assert_eq!(dropped.text(), "1");
    client.close().await.unwrap();
}

pub(crate) async fn a_killed_child_fails_its_calls_with_the_tail_of_its_stderr() {
    let (client, mut stderr) = connect().await;
    let call = client.call_tool("hang", ()).start();
    let line = stderr.recv().await.unwrap();

    kill_process(pid_of(&line), Signal::KILL).unwrap();

    let error = call.await.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error:?}");
    assert!(error.to_string().contains("signal: 9"), "{error}");
    assert!(error.to_string().contains(&line), "{error}");
    let next = client.call_tool("echo", ()).await.unwrap_err();
    assert_eq!(next.to_string(), error.to_string());
}

pub(crate) async fn a_child_that_exits_fails_its_calls_with_its_status() {
    let client = connect_without_probe(programs::command("exits_at_probe"))
        .await
        .unwrap();

    let error = client.call_tool("anything", ()).await.unwrap_err();

    assert!(error.to_string().contains("exit status: 3"), "{error}");
    assert!(error.to_string().contains("not initialized"), "{error}");
}

pub(crate) async fn a_child_whose_output_stays_open_in_another_process_fails_its_calls() {
    let (client, mut stderr) = shell("sleep 600 & echo $! >&2; exit 4").await;
    let left_behind = pid_of(&stderr.recv().await.unwrap());

    let error = client.call_tool("anything", ()).await.unwrap_err();

    assert!(error.to_string().contains("exit status: 4"), "{error}");
    wait_until_exited(left_behind).await;
}

pub(crate) async fn a_child_that_closes_its_input_fails_its_calls() {
    let (client, mut stderr) = shell("exec <&-; echo closed >&2; sleep 600").await;
    stderr.recv().await.unwrap();

    let error = client.call_tool("anything", ()).await.unwrap_err();

    assert!(
        error.to_string().contains("closed its stdin or stdout"),
        "{error}"
    );
}

pub(crate) async fn a_child_that_closes_its_output_fails_its_calls() {
    let (client, _) = shell("exec >&-; sleep 600").await;

    let error = client.call_tool("anything", ()).await.unwrap_err();

    assert!(
        error.to_string().contains("closed its stdin or stdout"),
        "{error}"
    );
}

pub(crate) async fn lines_that_a_child_prints_to_its_output_are_ignored() {
    let connect =
        Client::spawn(programs::command("prints_to_stdout")).protocol_version("2025-06-18");
    let client = connect.await.unwrap();

    let replies = [
        client.call_tool("anything", ()).await.unwrap().text(),
        client.call_tool("anything", ()).await.unwrap().text(),
    ];

    assert_eq!(replies, ["done", "done"]);
    client.close().await.unwrap();
}

pub(crate) async fn a_child_that_ignores_every_request_to_exit_is_killed_with_its_children() {
    let (client, pids) = child_ignoring_sigterm(Duration::from_millis(50)).await;

    client.close().await.unwrap();

    assert!(
        test_kill_process(pids[0]).is_err(),
        "`close` returns after the child was reaped"
    );
    wait_until_exited(pids[1]).await;
}

pub(crate) async fn a_child_exits_when_its_client_is_dropped() {
    let (client, mut stderr) = connect().await;
    let call = client.call_tool("hang", ()).start();
    let pid = pid_of(&stderr.recv().await.unwrap());

    drop((client, call));

    wait_until_exited(pid).await;
}

pub(crate) async fn a_child_that_ignores_sigterm_is_killed_when_its_client_is_dropped() {
    let (client, pids) = child_ignoring_sigterm(Duration::from_millis(50)).await;

    drop(client);

    for pid in pids {
        wait_until_exited(pid).await;
    }
}

pub(crate) async fn a_child_is_killed_when_the_runtime_is_dropped() {
    let pids = tokio::task::spawn_blocking(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (_client, pids) = runtime.block_on(child_ignoring_sigterm(NEVER));
        drop(runtime);
        pids
    });

    for pid in pids.await.unwrap() {
        wait_until_exited(pid).await;
    }
}

pub(crate) async fn a_child_inherits_only_safe_variables_and_gets_those_of_its_command() {
    let command = programs::command("server").env("GIVEN", "1");
    let client = Client::spawn(command).await.unwrap();

    let inherited = client.call_tool("variables", ()).await.unwrap().text();

    let inherited: BTreeSet<&str> = inherited.lines().collect();
    let safe = [
        "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER",
    ];
    let allowed: BTreeSet<&str> = safe
        .into_iter()
        .chain(["GIVEN", programs::VARIABLE])
        .collect();
    assert!(
        inherited.contains("GIVEN") && inherited.contains("PATH"),
        "{inherited:?}"
    );
    assert!(inherited.is_subset(&allowed), "{inherited:?}");
    client.close().await.unwrap();
}

pub(crate) async fn inherit_env_passes_all_variables_but_removed_ones() {
    let command = programs::command("server").inherit_env().env_remove("PATH");
    let client = Client::spawn(command).await.unwrap();

    let inherited = client.call_tool("variables", ()).await.unwrap().text();

    let inherited: BTreeSet<&str> = inherited.lines().collect();
    let ours: BTreeSet<String> = std::env::vars().map(|(name, _)| name).collect();
    let missing: Vec<_> = ours
        .iter()
        .filter(|name| !inherited.contains(&***name))
        .collect();
    assert_eq!(missing, ["PATH"]);
    client.close().await.unwrap();
}

pub(crate) async fn restart_replaces_a_dead_child() {
    let (client, mut stderr) = connect().await;
    let call = client.call_tool("hang", ()).start();
    let line = stderr.recv().await.unwrap();
    kill_process(pid_of(&line), Signal::KILL).unwrap();
    let error = call.await.unwrap_err();

    let again = client.restart().await.unwrap();

    assert!(error.to_string().contains(&line), "{error}");
    let reply = again.call_tool("echo", ()).await.unwrap();
    assert_eq!(reply.text(), "{}");
    let old = client.call_tool("echo", ()).await.unwrap_err();
    assert_eq!(old.to_string(), error.to_string());
    again.close().await.unwrap();
}

pub(crate) async fn restart_ends_a_running_child_first() {
    let (client, mut stderr) = connect().await;
    let call = client.call_tool("hang", ()).start();
    let pid = pid_of(&stderr.recv().await.unwrap());

    let again = client.restart().await.unwrap();

    assert!(
        test_kill_process(pid).is_err(),
        "the first child was reaped"
    );
    let error = call.await.unwrap_err();
    assert!(matches!(error, Error::Closed), "{error:?}");
    assert!(again.call_tool("echo", ()).await.is_ok());
    again.close().await.unwrap();
}

pub(crate) async fn a_connection_without_a_client_restarts_its_child() {
    for version in ["2026-07-28", "2025-06-18"] {
        let connect = Client::spawn(programs::command("server")).protocol_version(version);
        let first = connect.connection().await.unwrap();
        let (ended, first_id) = (first.ended(), first.process_id().unwrap());

        let second = first.restart().await.unwrap();

        assert!(matches!(ended.await, Error::Closed), "{version}");
        assert!(first.has_ended() && first.process_id().is_none());
        assert_ne!(second.process_id(), Some(first_id));
        assert_eq!(second.introduction(), first.introduction(), "{version}");
        let params = Json::from(json!({"name": "echo"}));
        let request = Request::new("tools/call", params, second.caller());
        let exchange = second.open(request, CallOptions::default());
        let answer = exchange.answer().await.unwrap();
        assert!(matches!(answer, Answer::Complete(_)), "{version}");
        second.close().await;
        assert_eq!(second.process_id(), None);
    }
}

pub(crate) async fn restart_remembers_the_version_of_the_child() {
    let client = Client::spawn(programs::command("lists_methods"))
        .await
        .unwrap();
    let before = client.call_tool("methods", ()).await.unwrap().text();

    let again = client.restart().await.unwrap();
    let once_more = again.restart().await.unwrap();

    let after = once_more.call_tool("methods", ()).await.unwrap().text();
    assert_eq!(
        before,
        "server/discover initialize notifications/initialized tools/call"
    );
    assert_eq!(after, "initialize notifications/initialized tools/call");
    once_more.close().await.unwrap();
}

pub(crate) async fn a_failed_restart_can_be_retried() {
    let folder = std::env::temp_dir().join(format!("bowline-restart-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let command = programs::command("server").current_dir(&folder);
    let client = Client::spawn(command).await.unwrap();

    std::fs::remove_dir(&folder).unwrap();
    let failed = client.restart().await;
    std::fs::create_dir(&folder).unwrap();
    let again = client.restart().await.unwrap();

    assert!(matches!(failed, Err(Error::Transport { .. })), "{failed:?}");
    assert!(again.call_tool("echo", ()).await.is_ok());
    again.close().await.unwrap();
    std::fs::remove_dir(&folder).unwrap();
}

pub(crate) async fn a_client_without_a_child_cannot_be_restarted() {
    let client = Client::in_process(&bowline::Server::new("here", "1"))
        .await
        .unwrap();

    let error = client.restart().await.unwrap_err();

    assert!(matches!(error, Error::Misuse { .. }), "{error:?}");
    assert!(client.ping().await.is_ok(), "the client still works");
}

pub(crate) async fn calls_return_at_their_deadlines_while_the_child_does_not_read_its_pipe() {
    let (client, mut stderr) = shell("echo $$ >&2; exec sleep 600").await;
    let child = pid_of(&stderr.recv().await.unwrap());
    let more_than_a_pipe_holds = json!({"fill": "x".repeat(1 << 20)});
    let fill = client.call_tool("fill", more_than_a_pipe_holds).start();
    let timed = || {
        let call = client.call_tool("slow", ());
        call.idle_timeout(Duration::from_millis(200)).into_future()
    };

    let late = tokio::join!(timed(), timed(), timed());

    for late in [late.0, late.1, late.2] {
        assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    }
    test_kill_process(child).unwrap();
    drop(fill);
    client.close().await.unwrap();
}

/// A child that reads nothing and ignores SIGTERM, whose own child does the same.
async fn child_ignoring_sigterm(grace: Duration) -> (Client, [Pid; 2]) {
    let script = "trap '' TERM; sleep 600 & echo $$ >&2; echo $! >&2; wait; wait; sleep 600";
    let (client, mut stderr) = shell_with_grace(script, grace).await;
    let pids = [stderr.recv().await.unwrap(), stderr.recv().await.unwrap()];
    (client, pids.map(|line| pid_of(&line)))
}

async fn shell(script: &str) -> (Client, mpsc::UnboundedReceiver<String>) {
    shell_with_grace(script, Duration::from_secs(2)).await
}

async fn shell_with_grace(
    script: &str,
    grace: Duration,
) -> (Client, mpsc::UnboundedReceiver<String>) {
    let (sender, stderr) = mpsc::unbounded_channel();
    let command = Command::new("sh")
        .args(["-c", script])
        .grace(grace)
        .on_stderr(move |line| sender.send(line.to_owned()).unwrap_or_default());
    (connect_without_probe(command).await.unwrap(), stderr)
}

/// A connection without a probe, for programs that would not answer it.
fn connect_without_probe(command: Command) -> ClientBuilder {
    let known = json!({"version": "2026-07-28"});
    let known = serde_json::from_value(known).unwrap();
    Client::spawn(command).known_server(known)
}

/// Waits until a process that is not our child has exited.
async fn wait_until_exited(pid: Pid) {
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    while test_kill_process(pid).is_ok() && !is_zombie(pid) {
        ticks.tick().await;
    }
}

/// Whether it has exited and its new parent has not reaped it yet.
fn is_zombie(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let state = stat
        .ok()
        .and_then(|stat| stat.rsplit(')').next().map(str::to_owned));
    state.is_some_and(|state| state.trim_start().starts_with('Z'))
}

/// Longer than the time limit of a test.
const NEVER: Duration = Duration::from_secs(600);
