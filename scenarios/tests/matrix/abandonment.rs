//! The rows of the matrix: every way to abandon a call, written once for all columns.

use std::pin::{Pin, pin};
use std::time::Duration;

use bowline::types::SubscriptionFilter;
use bowline::{Call, Error};
use serde_json::json;
use tokio::sync::watch;

use crate::cell_env::{CellEnv, is_connection_loss, poll_until};
use crate::column::{Column, Transport};
use crate::expected_frames::{ExpectedFrames, cancel};
use crate::server_end::ServerLocation;
use crate::tasks;
use crate::tools::Extensions;

/// A way to abandon a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abandonment {
    pub(crate) name: &'static str,
    run: fn(Column) -> Pin<Box<dyn Future<Output = ()>>>,
    not_applicable: fn(Column) -> Option<&'static str>,
}

/// Creates a row from its name and the function that runs it in an environment.
macro_rules! row {
    ($name:literal, $run:ident) => {
        row!($name, $run, |_| None)
    };
    ($name:literal, $run:ident, $not_applicable:expr) => {
        Abandonment {
            name: $name,
            run: |column| Box::pin(async move { $run(CellEnv::open(column).await).await }),
            not_applicable: $not_applicable,
        }
    };
}

impl Abandonment {
    pub(crate) const ALL: &'static [Self] = &[
        row!("dropped before its first poll", before_its_first_poll),
        row!(
            "dropped after sending, before any response",
            before_any_response
        ),
        row!(
            "dropped while notifications stream",
            while_notifications_stream,
            |column| { column.responds_with_json().then_some(JSON_IS_ONE_MESSAGE) }
        ),
        row!("`select!` lost", lost_select),
        row!("`tokio::time::timeout`", outer_timeout),
        row!("the call's own timeout, idle", idle_timeout),
        row!("the call's own timeout, total", total_timeout),
        row!("`call.cancel(reason)`", cancelled),
        row!("the client is dropped", client_dropped),
        Self {
            name: "the server process is killed",
            run: |column| Box::pin(server_killed(column)),
            not_applicable: |column| {
                let is_one_process = column.transport == Transport::InProcess;
                is_one_process.then_some(NO_SERVER_PROCESS)
            },
        },
        row!("a subscription is dropped", subscription),
        row!(
            "one round of a multi round-trip request is dropped",
            one_round,
            |column| { (!column.is_modern()).then_some(NO_ROUND_TRIPS) }
        ),
        row!("a page stream is dropped", pages),
        row!(
            "a handler drops its request to the client",
            server_request,
            |column| {
                match column.is_modern() {
                    true => Some(NO_SERVER_REQUESTS),
                    false => column.responds_with_json().then_some(JSON_IS_ONE_MESSAGE),
                }
            }
        ),
        Self {
            name: "a task is cancelled by its handle",
            run: |column| Box::pin(tasks::cancelled_by_handle(column)),
            not_applicable: without_tasks,
        },
        Self {
            name: "a call that waits for its task is dropped",
            run: |column| Box::pin(tasks::waiting_call_dropped(column)),
            not_applicable: without_tasks,
        },
        Self {
            name: "a task expires",
            run: |column| Box::pin(tasks::expired(column)),
            not_applicable: without_tasks,
        },
        Self {
            name: "a task is cancelled after its server was killed and another one resumed it",
            run: |column| Box::pin(tasks::cancelled_after_restart(column)),
            not_applicable: |column| {
                let is_one_process = column.transport == Transport::InProcess;
                without_tasks(column).or(is_one_process.then_some(NO_SERVER_PROCESS))
            },
        },
    ];

    /// The reason, by the specification, why this row does not apply to the column; `None` if it does.
    pub(crate) fn not_applicable(self, column: Column) -> Option<&'static str> {
        match column.transport {
            Transport::Stateless => Some(NO_SESSION),
            _ => (self.not_applicable)(column),
        }
    }

    /// Runs the cell: abandons a call in this column, and asserts the consequences.
    pub(crate) async fn run(self, column: Column) {
        (self.run)(column).await;
    }
}

fn without_tasks(column: Column) -> Option<&'static str> {
    (!column.is_modern()).then_some(NO_TASKS)
}

async fn before_its_first_poll(env: CellEnv) {
    drop(env.start("slow"));

    let frames = ExpectedFrames::default();
    let observer = env.observer.clone();
    env.end(frames).await;
    assert_eq!(observer.counts().started, 0);
}

async fn before_any_response(env: CellEnv) {
    let call = env.in_flight("slow").await;

    drop(call);

    env.observer.wait_for_drops(1).await;
    let frames = env.abandoned(1, "slow", DROPPED);
    env.end(frames).await;
}

async fn while_notifications_stream(env: CellEnv) {
    let reports = watch::Sender::new(0);
    let (counter, mut reported) = (reports.clone(), reports.subscribe());
    let talks = env.client.call_tool("reports", json!({"name": "mine"}));
    let mut call = talks
        .on_progress(move |_| counter.send_modify(|count| *count += 1))
        .start();
    let two_reports = async {
        reported.wait_for(|count| *count == 2).await.unwrap();
        env.observer.wait_for_starts(1).await;
    };
    poll_until(&mut call, two_reports).await;

    drop(call);

    env.observer.wait_for_drops(1).await;
    let frames = ExpectedFrames::default()
        .then(env.request(1, "tools/call reports"))
        .then("← progress 1")
        .then("← progress 2")
        .abandoned(env.column, env.id(1), DROPPED);
    env.end(frames).await;
}

async fn lost_select(env: CellEnv) {
    let slow = env.client.call_tool("slow", json!({"name": "mine"}));

    tokio::select! {
        reply = slow => panic!("the call ended: {reply:?}"),
        () = env.observer.wait_for_starts(1) => {}
    }

    env.observer.wait_for_drops(1).await;
    let frames = env.abandoned(1, "slow", DROPPED);
    env.end(frames).await;
}

async fn outer_timeout(env: CellEnv) {
    let slow = env.client.call_tool("slow", json!({"name": "mine"}));
    let mut limited = Box::pin(tokio::time::timeout(LIMIT, slow.into_future()));
    poll_until(&mut limited, env.observer.wait_for_starts(1)).await;

    advance_clock(LIMIT).await;

    assert!(limited.as_mut().await.is_err());
    drop(limited);
    env.observer.wait_for_drops(1).await;
    let frames = env.abandoned(1, "slow", DROPPED);
    env.end(frames).await;
}

async fn idle_timeout(env: CellEnv) {
    let slow = env.client.call_tool("slow", json!({"name": "mine"}));
    own_timeout(env, slow.idle_timeout(LIMIT).start()).await;
}

async fn total_timeout(env: CellEnv) {
    let slow = env.client.call_tool("slow", json!({"name": "mine"}));
    own_timeout(env, slow.timeout(LIMIT).start()).await;
}

async fn own_timeout(env: CellEnv, mut call: Call) {
    env.poll_into_handler(&mut call).await;

    advance_clock(LIMIT).await;

    let error = call.await.unwrap_err();
    assert!(
        matches!(error, Error::Timeout { after } if after == LIMIT),
        "{error}"
    );
    env.observer.wait_for_drops(1).await;
    let frames = env.abandoned(1, "slow", TIMED_OUT);
    env.end(frames).await;
}

async fn cancelled(env: CellEnv) {
    let call = env.in_flight("slow").await;

    call.cancel("the user closed the tab");

    env.observer.wait_for_drops(1).await;
    let frames = env.abandoned(1, "slow", "the user closed the tab");
    env.end(frames).await;
}

async fn client_dropped(env: CellEnv) {
    let call = env.in_flight("slow").await;

    let frames = ExpectedFrames::default().then(env.request(1, "tools/call slow"));
    env.end_by_dropping_client(call, frames).await;
}

async fn server_killed(column: Column) {
    let mut env = CellEnv::open_in(ServerLocation::ChildProcess, column, &Extensions::None).await;
    let call = env.in_flight("slow").await;

    env.kill_server().await;

    let reply = call.await;
    assert!(is_connection_loss(&reply), "{reply:?}");
    let frames = ExpectedFrames::default().then(env.request(1, "tools/call slow"));
    env.end_without_server(frames).await;
}

async fn subscription(env: CellEnv) {
    let mut filter = SubscriptionFilter::default();
    filter.resource_subscriptions = Some(vec!["a:1".to_owned()]);
    let subscription = env.client.subscribe(filter).await.unwrap();
    env.observer.wait_for_starts(1).await;

    drop(subscription);

    env.observer.wait_for_drops(1).await;
    let frames = match env.column.is_modern() {
        true => ExpectedFrames::default()
            .then(env.request(1, "subscriptions/listen"))
            .then("← notifications/subscriptions/acknowledged")
            .abandoned(env.column, env.id(1), DROPPED),
        // In legacy versions a `resources/unsubscribe` request ends the subscription.
        false => ExpectedFrames::default()
            .then(env.request(1, "resources/subscribe a:1"))
            .then(env.result(1))
            .then(env.request(2, "resources/unsubscribe a:1"))
            .unordered(env.result(2)),
    };
    env.end(frames).await;
}

async fn one_round(env: CellEnv) {
    env.host.handlers.release("host");
    let call = env.in_flight("roots").await;

    drop(call);

    env.observer.wait_for_drops(1).await;
    let frames = ExpectedFrames::default()
        .then(env.request(1, "tools/call roots"))
        .then(env.result(1))
        .then(env.request(2, "tools/call roots"))
        .abandoned(env.column, env.id(2), DROPPED);
    env.end(frames).await;
}

async fn pages(env: CellEnv) {
    let mut tools = env.client.list_tools().stream();
    assert!(tools.next().await.unwrap().is_ok());
    {
        let mut next = pin!(tools.next());
        poll_until(&mut next, env.observer.wait_for_starts(1)).await;
    }

    drop(tools);

    env.observer.wait_for_drops(1).await;
    let frames = ExpectedFrames::default()
        .then(env.request(1, "tools/list"))
        .then(env.result(1))
        .then(env.request(2, "tools/list"))
        .abandoned(env.column, env.id(2), DROPPED);
    env.end(frames).await;
}

async fn server_request(env: CellEnv) {
    let mut call = env.start("drops request");
    poll_until(&mut call, env.host.wait_for_starts(1)).await;

    let frames = ExpectedFrames::default()
        .then(env.request(1, "tools/call drops request"))
        .then("← 1 roots/list")
        .unordered(cancel('←', 1, DROPPED))
        .unordered(env.result(1));
    let frames = env.release("mine", frames).await;

    assert_eq!(call.await.unwrap().text(), "mine");
    env.host.wait_for_drops(1).await;
    env.end(frames).await;
}

/// Advances the clock. It runs otherwise: sockets and child processes need real time.
async fn advance_clock(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Longer than any step of a cell, and shorter than the keep-alive and idle intervals of connections.
const LIMIT: Duration = Duration::from_secs(10);
const DROPPED: &str = "caller cancelled";
const TIMED_OUT: &str = "timed out after 10s";

const NO_SESSION: &str =
    "without a session a posted cancel matches no request: the server accepts and ignores it";
const NO_SERVER_PROCESS: &str = "the server is not a separate process";
const JSON_IS_ONE_MESSAGE: &str =
    "an `application/json` response is one message; other messages of a request need a stream";
const NO_ROUND_TRIPS: &str = "multi round-trip requests exist since 2026-07-28";
const NO_TASKS: &str = "the tasks extension exists since 2026-07-28";
const NO_SERVER_REQUESTS: &str = "since 2026-07-28 servers send no requests";
