//! Ctrl-C during a call stops the handler of the server, and says how.

use bowline::exchange::Request;
use bowline::layer::Next;
use bowline::prelude::*;
use bowline::testing::HandlerCounter;
use bowline_cli::SlowCallCounts;
use bowline_tasks::{TaskSettings, Tasks};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::watch;

use crate::support::{BOWLINE, HttpFixture, Program, VERSIONS, in_time, run};

/// Asks the fixture until its counters meet a condition.
async fn wait_for(client: &Client, condition: impl Fn(&SlowCallCounts) -> bool) {
    loop {
        let reply = client.call_tool("stats", ()).await.unwrap();
        if condition(&reply.structured().unwrap()) {
            return;
        }
    }
}

/// Starts a call of `slow`, interrupts it while its handler runs, and checks the report.
async fn interrupt(words: &[&str], client: &Client, how: &str) {
    client.call_tool("reset", ()).await.unwrap();
    let call = Program::start(words);
    wait_for(client, |counts| counts.active == 1).await;

    call.interrupt().await;
    let ended = call.end().await;

    assert_eq!(ended.code, Some(130), "{words:?}: {ended:?}");
    assert!(
        ended.stderr.contains("cancelled after"),
        "{words:?}: {ended:?}"
    );
    assert!(ended.stderr.contains(how), "{words:?}: {ended:?}");
    wait_for(client, |counts| counts.active == 0 && counts.cancelled == 1).await;
}

#[tokio::test]
async fn an_interrupted_call_over_http_stops_at_the_server() {
    in_time(async {
        let fixture = HttpFixture::start().await;
        let client = Client::connect(&fixture.url).await.unwrap();
        let hows = [
            "closed the response of request",
            "posted notifications/cancelled for request",
        ];
        for (version, how) in VERSIONS.into_iter().zip(hows) {
            let words = [
                "call",
                &fixture.url,
                "slow",
                "seconds=600",
                "--protocol-version",
                version,
            ];
            interrupt(&words, &client, how).await;
        }
    })
    .await;
}

/// The command ends right after the timeout, and must send the cancel before.
#[tokio::test]
async fn a_call_that_times_out_over_http_stops_at_the_server() {
    in_time(async {
        let fixture = HttpFixture::start().await;
        let client = Client::connect(&fixture.url).await.unwrap();
        for version in VERSIONS {
            client.call_tool("reset", ()).await.unwrap();
            let words = [
                "call",
                &fixture.url,
                "slow",
                "seconds=600",
                "--timeout",
                "500ms",
                "--protocol-version",
                version,
            ];
            let ended = run(&words).await;
            assert_eq!(ended.code, Some(7), "{version}: {ended:?}");
            // On a busy machine the call may time out before its handler starts.
            wait_for(&client, |counts| counts.active == 0).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_interrupted_call_over_stdio_stops_at_the_server() {
    in_time(async {
        // Behind a bridge over stdio, so that the counters outlive the server of the call.
        let fixture = HttpFixture::start().await;
        let client = Client::connect(&fixture.url).await.unwrap();
        for version in VERSIONS {
            let words = ["call", "slow", "seconds=600", "--protocol-version", version];
            let server = ["--", BOWLINE, "bridge", &fixture.url];
            let how = "sent notifications/cancelled for request";
            interrupt(&[&words[..], &server].concat(), &client, how).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_interrupt_while_connecting_kills_the_server() {
    in_time(async {
        // A server that never answers, and ignores that its stdin is closed.
        let server = ["--", "/bin/sh", "-c", "echo pid $$ >&2; exec sleep 1000"];
        let words = ["ls", "-v", "--connect-timeout", "1h"];
        let mut program = Program::start(&[&words[..], &server].concat());
        let mut stderr = BufReader::new(program.take_stderr()).lines();
        let pid = loop {
            let line = stderr.next_line().await.unwrap().expect("the pid");
            if let Some(pid) = line.strip_prefix("pid ") {
                break pid.to_owned();
            }
        };

        program.interrupt().await;

        assert_eq!(program.exit_code().await, Some(130));
        wait_for_exit(&pid).await;
    })
    .await;
}

/// Serves a tool whose calls become tasks that do not end. Also returns how many of them run, and how many requests for
/// their status have come.
async fn serve_tasks() -> (String, HandlerCounter, watch::Receiver<usize>) {
    let handlers = HandlerCounter::default();
    let endless = handlers.clone();
    let work = Tool::new("work", move || {
        let endless = endless.clone();
        async move { endless.run(std::future::pending::<String>()).await }
    });
    let (requested, status_requests) = watch::channel(0);
    let layer = move |request: Request, next: Next| {
        if request.method == "tasks/get" {
            requested.send_modify(|count| *count += 1);
        }
        async move { next.run(request).await }
    };
    let server = Server::new("endless", "1.0.0")
        .tool(work.with_settings(TaskSettings::new()))
        .extension(Tasks::in_memory())
        .layer(layer);
    let bound = server.http().bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/mcp", bound.local_addr());
    tokio::spawn(bound.serve());
    (url, handlers, status_requests)
}

#[tokio::test]
async fn an_interrupted_call_cancels_its_task() {
    in_time(async {
        let (url, handlers, mut status_requests) = serve_tasks().await;
        let once = ["call", &url, "work", "--args", "{}"];
        let bridged = [
            "call", "work", "--args", "{}", "--", BOWLINE, "bridge", &url,
        ];
        let many = [&once[..], &["--repeat", "20", "--concurrency", "20"]].concat();
        let cases: [(&[&str], usize, &str); 3] = [
            (&once, 1, "sent tasks/cancel for the task of the call"),
            (&bridged, 1, "sent tasks/cancel for the task of the call"),
            (&many, 20, ""),
        ];
        let mut tasks = 0;
        for (words, calls, how) in cases {
            let before = *status_requests.borrow();
            let program = Program::start(words);
            // Each call has got its task, and asks for it.
            status_requests
                .wait_for(|count| *count >= before + calls)
                .await
                .unwrap();
            tasks += calls;

            program.interrupt().await;
            let ended = program.end().await;

            assert_eq!(ended.code, Some(130), "{words:?}: {ended:?}");
            assert!(ended.stderr.contains(how), "{words:?}: {ended:?}");
            handlers.wait_for(|counts| counts.dropped == tasks).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_call_that_times_out_cancels_its_task() {
    in_time(async {
        let (url, handlers, _) = serve_tasks().await;
        let words = ["call", &url, "work", "--args", "{}", "--timeout", "3s"];

        let ended = run(&words).await;

        assert_eq!(ended.code, Some(7), "{ended:?}");
        handlers
            .wait_for(|counts| counts.dropped == counts.started)
            .await;
    })
    .await;
}

/// Waits until a process has exited. One that was killed with its parent may remain as a zombie.
async fn wait_for_exit(pid: &str) {
    loop {
        let mut command = Command::new("ps");
        let output = command.args(["-o", "stat=", "-p", pid]).output().await;
        let state = String::from_utf8(output.unwrap().stdout).unwrap();
        if state.trim().is_empty() || state.starts_with('Z') {
            return;
        }
    }
}
