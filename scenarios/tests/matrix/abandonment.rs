//! The rows of the matrix: every way to abandon a call, written once for all columns.

use std::fmt;
use std::future::IntoFuture;
use std::pin::pin;
use std::time::Duration;

use bowline::Error;
use bowline::types::SubscriptionFilter;
use serde_json::json;
use tokio::sync::watch;

use crate::cell_env::{CellEnv, is_connection_loss, poll_until};
use crate::column::{Column, ResponseMode, Transport};
use crate::expected_frames::{ExpectedFrames, cancel};
use crate::server_end::ServerLocation;
use crate::tools::Host;

/// A way to abandon a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Abandonment {
    BeforeItsFirstPoll,
    BeforeAnyResponse,
    WhileNotificationsStream,
    LostSelect,
    OuterTimeout,
    IdleTimeout,
    TotalTimeout,
    Cancelled,
    ClientDropped,
    ServerKilled,
    Subscription,
    OneRound,
    Pages,
    ServerRequest,
}

impl Abandonment {
    pub(crate) const ALL: &'static [Self] = &[
        Self::BeforeItsFirstPoll,
        Self::BeforeAnyResponse,
        Self::WhileNotificationsStream,
        Self::LostSelect,
        Self::OuterTimeout,
        Self::IdleTimeout,
        Self::TotalTimeout,
        Self::Cancelled,
        Self::ClientDropped,
        Self::ServerKilled,
        Self::Subscription,
        Self::OneRound,
        Self::Pages,
        Self::ServerRequest,
    ];

    /// Parses an [`Abandonment::key`].
    pub(crate) fn find(key: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|abandonment| abandonment.key() == key)
    }

    /// The command-line form, parsed by [`Abandonment::find`].
    pub(crate) fn key(self) -> String {
        format!("{self:?}")
    }

    /// The reason, by the specification, why this row does not apply to the column; `None` if it does.
    pub(crate) fn not_applicable(self, column: Column) -> Option<&'static str> {
        let is_modern = column.is_modern();
        let responds_with_json = matches!(column.transport, Transport::Http(_, ResponseMode::Json));
        match self {
            _ if column.transport == Transport::Stateless => Some(NO_SESSION),
            Self::ServerKilled if column.transport == Transport::InProcess => {
                Some(NO_SERVER_PROCESS)
            }
            Self::WhileNotificationsStream if responds_with_json => Some(JSON_IS_ONE_MESSAGE),
            Self::OneRound if !is_modern => Some(NO_ROUND_TRIPS),
            Self::ServerRequest if is_modern => Some(NO_SERVER_REQUESTS),
            Self::ServerRequest if responds_with_json => Some(JSON_IS_ONE_MESSAGE),
            _ => None,
        }
    }

    /// Runs the cell: abandons a call in this column, and asserts the consequences.
    pub(crate) async fn run(self, column: Column) {
        let host = match self {
            Self::OneRound => Host::answering(),
            _ => Host::never_answering(),
        };
        let location = match self {
            Self::ServerKilled => ServerLocation::ChildProcess,
            _ => ServerLocation::ThisProcess,
        };
        let env = CellEnv::open_in(location, column, host).await;
        match self {
            Self::BeforeItsFirstPoll => before_its_first_poll(env).await,
            Self::BeforeAnyResponse => before_any_response(env).await,
            Self::WhileNotificationsStream => while_notifications_stream(env).await,
            Self::LostSelect => lost_select(env).await,
            Self::OuterTimeout => outer_timeout(env).await,
            Self::IdleTimeout => own_timeout(env, OwnTimeout::Idle).await,
            Self::TotalTimeout => own_timeout(env, OwnTimeout::Total).await,
            Self::Cancelled => cancelled(env).await,
            Self::ClientDropped => client_dropped(env).await,
            Self::ServerKilled => server_killed(env).await,
            Self::Subscription => subscription(env).await,
            Self::OneRound => one_round(env).await,
            Self::Pages => pages(env).await,
            Self::ServerRequest => server_request(env).await,
        }
    }
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
    let talks = env.client.call_tool("progress", json!({"name": "mine"}));
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
        .then(env.request(1, "tools/call progress"))
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

#[derive(Clone, Copy)]
enum OwnTimeout {
    Idle,
    Total,
}

async fn own_timeout(env: CellEnv, which: OwnTimeout) {
    let slow = env.client.call_tool("slow", json!({"name": "mine"}));
    let slow = match which {
        OwnTimeout::Idle => slow.timeout(LIMIT),
        OwnTimeout::Total => slow.total_timeout(LIMIT),
    };
    let mut call = slow.start();
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

async fn server_killed(mut env: CellEnv) {
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
    let mut call = env.start("drop_roots");
    poll_until(&mut call, env.host.wait_for_starts(1)).await;

    let frames = ExpectedFrames::default()
        .then(env.request(1, "tools/call drop_roots"))
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

impl fmt::Display for Abandonment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeforeItsFirstPoll => "dropped before its first poll",
            Self::BeforeAnyResponse => "dropped after sending, before any response",
            Self::WhileNotificationsStream => "dropped while notifications stream",
            Self::LostSelect => "`select!` lost",
            Self::OuterTimeout => "`tokio::time::timeout`",
            Self::IdleTimeout => "the call's own timeout, idle",
            Self::TotalTimeout => "the call's own timeout, total",
            Self::Cancelled => "`call.cancel(reason)`",
            Self::ClientDropped => "the client is dropped",
            Self::ServerKilled => "the server process is killed",
            Self::Subscription => "a subscription is dropped",
            Self::OneRound => "one round of a multi round-trip request is dropped",
            Self::Pages => "a page stream is dropped",
            Self::ServerRequest => "a handler drops its request to the client",
        })
    }
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
const NO_SERVER_REQUESTS: &str = "since 2026-07-28 servers send no requests";
