//! Children that are started again when they exit.

use std::time::Duration;

use bowline::Client;
use bowline::client::{ClientBuilder, Reconnect};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::sync::mpsc;

use crate::programs;
use crate::serving::pid_of;

pub(crate) async fn a_killed_child_is_started_again_for_later_calls() {
    for version in ["2026-07-28", "2025-06-18"] {
        let (connect, mut stderr) = reconnecting("server");
        let client = connect.protocol_version(version).await.unwrap();
        let call = client.call_tool("hang", ()).start();
        let first = stderr.recv().await.unwrap();

        kill_process(pid_of(&first), Signal::KILL).unwrap();

        let error = call.await.unwrap_err();
        assert!(error.is_disconnected(), "{error:?}");
        assert!(error.to_string().contains("signal: 9"), "{error}");
        let echo = || client.call_tool("echo", ()).into_future();
        let replies = tokio::join!(echo(), echo(), echo());
        assert_eq!(replies.0.unwrap().text(), "{}", "{version}");
        assert!(replies.1.is_ok() && replies.2.is_ok());
        let call = client.call_tool("hang", ()).start();
        let second = stderr.recv().await.unwrap();
        assert_ne!(second, first, "one new process");
        drop(call);
        client.close().await.unwrap();
    }
}

pub(crate) async fn a_child_that_exits_at_each_call_is_ended_after_the_maximum_of_attempts() {
    let (connect, _) = reconnecting("exits_at_call");
    let connect = connect.reconnect(quick().max_attempts(3));
    let client = connect.protocol_version("2025-06-18").await.unwrap();
    let closed = client.closed();

    let mut calls = 0;
    while !client
        .call_tool("any", ())
        .await
        .unwrap_err()
        .to_string()
        .contains("attempts")
    {
        calls += 1;
    }

    let error = closed.await;
    assert_eq!(calls, 3); // of the first process and two others
    assert!(format!("{error:?}").contains("exit status: 3"), "{error:?}");
}

/// Writing the handshake to such a program fails at times.
pub(crate) async fn a_program_that_exits_at_once_when_it_is_started_again_fails_each_attempt() {
    let marker = std::env::temp_dir().join(format!("bowline-started-{}", std::process::id()));
    for version in ["2026-07-28", "2025-06-18"].repeat(5) {
        let script = r#"[ -e "$STARTED" ] && exit 3; : > "$STARTED"; exec "$0""#;
        let command = programs::script("server", script).env("STARTED", &marker);
        let connect = Client::spawn(command).reconnect(quick().max_attempts(3));
        let connect = connect.protocol_version(version).connect_timeout(NEVER);
        let client = connect.await.unwrap();
        client.call_tool("echo", ()).await.unwrap(); // the program runs
        let id = i32::try_from(client.process_id().unwrap()).unwrap();

        kill_process(Pid::from_raw(id).unwrap(), Signal::KILL).unwrap();

        let error = client.closed().await;
        std::fs::remove_file(&marker).unwrap();
        assert!(error.to_string().contains("3 attempts"), "{error}");
        assert!(format!("{error:?}").contains("exit status: 3"), "{error:?}");
    }
}

pub(crate) async fn closing_reaps_the_child_that_was_started_last() {
    let (connect, mut stderr) = reconnecting("server");
    let client = connect.await.unwrap();
    let mut pids = Vec::new();
    for _ in 0..2 {
        let call = client.call_tool("hang", ()).start();
        let pid = pid_of(&stderr.recv().await.unwrap());
        let id = client.process_id().unwrap();
        assert_eq!(i32::try_from(id).unwrap(), pid.as_raw_nonzero().get());
        pids.push(pid);
        if pids.len() == 1 {
            kill_process(pid, Signal::KILL).unwrap();
            call.await.unwrap_err();
        }
    }

    client.clone().close().await.unwrap();

    assert_eq!(client.process_id(), None);
    assert!(pids.into_iter().all(|pid| test_kill_process(pid).is_err()));
}

pub(crate) async fn dropping_the_client_before_the_next_start_starts_nothing() {
    let (connect, mut stderr) = reconnecting("server");
    let never = Reconnect::default().min_delay(NEVER).max_delay(NEVER);
    let client = connect.reconnect(never).await.unwrap();
    let call = client.call_tool("hang", ()).start();
    kill_process(pid_of(&stderr.recv().await.unwrap()), Signal::KILL).unwrap();
    call.await.unwrap_err();

    drop(client);

    // The command, and with it the callback, is dropped; that is before the time limit of a test.
    assert_eq!(stderr.recv().await, None);
}

fn quick() -> Reconnect {
    Reconnect::default().min_delay(Duration::from_millis(20))
}

fn reconnecting(program: &str) -> (ClientBuilder, mpsc::UnboundedReceiver<String>) {
    let (sender, stderr) = mpsc::unbounded_channel();
    let command = programs::command(program)
        .on_stderr(move |line| sender.send(line.to_owned()).unwrap_or_default());
    (Client::spawn(command).reconnect(quick()), stderr)
}

/// Longer than the time limit of a test.
const NEVER: Duration = Duration::from_secs(600);
