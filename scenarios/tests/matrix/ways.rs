//! The rows of the matrix: every way of letting go, written once for all columns.

use std::fmt;
use std::future::IntoFuture;
use std::pin::pin;
use std::time::Duration;

use bowline::Error;
use bowline::types::SubscriptionFilter;
use serde_json::json;
use tokio::sync::watch;

use crate::column::{Answers, Column, Transport};
use crate::far_end::Place;
use crate::frames::{Frames, cancel};
use crate::tools::Host;
use crate::world::{World, is_loss, until};

/// A way of letting go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    BeforeItsFirstPoll,
    BeforeAnyAnswer,
    WhileNotificationsStream,
    LostSelect,
    OuterTimeout,
    IdleTimeout,
    TotalTimeout,
    Cancelled,
    ClientDropped,
    ServerDies,
    Subscription,
    LegOfManyRounds,
    Pages,
    QuestionOfAHandler,
}

impl Way {
    pub(crate) const ALL: &'static [Self] = &[
        Self::BeforeItsFirstPoll,
        Self::BeforeAnyAnswer,
        Self::WhileNotificationsStream,
        Self::LostSelect,
        Self::OuterTimeout,
        Self::IdleTimeout,
        Self::TotalTimeout,
        Self::Cancelled,
        Self::ClientDropped,
        Self::ServerDies,
        Self::Subscription,
        Self::LegOfManyRounds,
        Self::Pages,
        Self::QuestionOfAHandler,
    ];

    /// Finds what [`Way::key`] names.
    pub(crate) fn find(key: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|way| way.key() == key)
    }

    /// How a command line names it.
    pub(crate) fn key(self) -> String {
        format!("{self:?}")
    }

    /// Why there is no such thing in this column, by the specification.
    pub(crate) fn excuse(self, column: Column) -> Option<&'static str> {
        let is_modern = column.is_modern();
        let answers_in_json = matches!(column.transport, Transport::Http(_, Answers::Json));
        match self {
            _ if column.transport == Transport::Forgetful => Some(NOTHING_TO_MATCH_IN),
            Self::ServerDies if column.transport == Transport::InProcess => Some(NO_OTHER_PROCESS),
            Self::WhileNotificationsStream if answers_in_json => Some(JSON_IS_ONE_MESSAGE),
            Self::LegOfManyRounds if !is_modern => Some(ONE_ROUND),
            Self::QuestionOfAHandler if is_modern => Some(SERVERS_DO_NOT_ASK),
            Self::QuestionOfAHandler if answers_in_json => Some(JSON_IS_ONE_MESSAGE),
            _ => None,
        }
    }

    /// Lets go in this column, and asserts what must hold then.
    pub(crate) async fn run(self, column: Column) {
        let host = match self {
            Self::LegOfManyRounds => Host::that_answers(),
            _ => Host::that_never_answers(),
        };
        let place = match self {
            Self::ServerDies => Place::Elsewhere,
            _ => Place::Here,
        };
        let world = World::open_at(place, column, host).await;
        match self {
            Self::BeforeItsFirstPoll => before_its_first_poll(world).await,
            Self::BeforeAnyAnswer => before_any_answer(world).await,
            Self::WhileNotificationsStream => while_notifications_stream(world).await,
            Self::LostSelect => lost_select(world).await,
            Self::OuterTimeout => outer_timeout(world).await,
            Self::IdleTimeout => own_timeout(world, OwnTimeout::Idle).await,
            Self::TotalTimeout => own_timeout(world, OwnTimeout::Total).await,
            Self::Cancelled => cancelled(world).await,
            Self::ClientDropped => client_dropped(world).await,
            Self::ServerDies => server_dies(world).await,
            Self::Subscription => subscription(world).await,
            Self::LegOfManyRounds => leg_of_many_rounds(world).await,
            Self::Pages => pages(world).await,
            Self::QuestionOfAHandler => question_of_a_handler(world).await,
        }
    }
}

async fn before_its_first_poll(world: World) {
    drop(world.start("slow"));

    let frames = Frames::default();
    let seen = world.seen.clone();
    world.end(frames).await;
    assert_eq!(seen.tally().started, 0);
}

async fn before_any_answer(world: World) {
    let call = world.in_flight("slow").await;

    drop(call);

    world.seen.dropped(1).await;
    let frames = world.let_go(1, "slow", DROPPED);
    world.end(frames).await;
}

async fn while_notifications_stream(world: World) {
    let reports = watch::Sender::new(0);
    let (heard, mut reported) = (reports.clone(), reports.subscribe());
    let talks = world.client.call_tool("talks", json!({"name": "mine"}));
    let mut call = talks
        .on_progress(move |_| heard.send_modify(|count| *count += 1))
        .start();
    let two_reports = async {
        reported.wait_for(|count| *count == 2).await.unwrap();
        world.seen.started(1).await;
    };
    until(&mut call, two_reports).await;

    drop(call);

    world.seen.dropped(1).await;
    let frames = Frames::default()
        .then(world.request(1, "tools/call talks"))
        .then("← progress 1")
        .then("← progress 2")
        .let_go(world.column, world.id(1), DROPPED);
    world.end(frames).await;
}

async fn lost_select(world: World) {
    let slow = world.client.call_tool("slow", json!({"name": "mine"}));

    tokio::select! {
        reply = slow => panic!("the call ended: {reply:?}"),
        () = world.seen.started(1) => {}
    }

    world.seen.dropped(1).await;
    let frames = world.let_go(1, "slow", DROPPED);
    world.end(frames).await;
}

async fn outer_timeout(world: World) {
    let slow = world.client.call_tool("slow", json!({"name": "mine"}));
    let mut limited = Box::pin(tokio::time::timeout(LIMIT, slow.into_future()));
    until(&mut limited, world.seen.started(1)).await;

    let_time_pass(LIMIT).await;

    assert!(limited.as_mut().await.is_err());
    drop(limited);
    world.seen.dropped(1).await;
    let frames = world.let_go(1, "slow", DROPPED);
    world.end(frames).await;
}

#[derive(Clone, Copy)]
enum OwnTimeout {
    Idle,
    Total,
}

async fn own_timeout(world: World, which: OwnTimeout) {
    let slow = world.client.call_tool("slow", json!({"name": "mine"}));
    let slow = match which {
        OwnTimeout::Idle => slow.timeout(LIMIT),
        OwnTimeout::Total => slow.total_timeout(LIMIT),
    };
    let mut call = slow.start();
    world.run_into_handler(&mut call).await;

    let_time_pass(LIMIT).await;

    let error = call.await.unwrap_err();
    assert!(
        matches!(error, Error::Timeout { after } if after == LIMIT),
        "{error}"
    );
    world.seen.dropped(1).await;
    let frames = world.let_go(1, "slow", TIMED_OUT);
    world.end(frames).await;
}

async fn cancelled(world: World) {
    let call = world.in_flight("slow").await;

    call.cancel("the user closed the tab");

    world.seen.dropped(1).await;
    let frames = world.let_go(1, "slow", "the user closed the tab");
    world.end(frames).await;
}

async fn client_dropped(world: World) {
    let call = world.in_flight("slow").await;

    let frames = Frames::default().then(world.request(1, "tools/call slow"));
    world.end_by_dropping(call, frames).await;
}

async fn server_dies(mut world: World) {
    let call = world.in_flight("slow").await;

    world.kill_server().await;

    let reply = call.await;
    assert!(is_loss(&reply), "{reply:?}");
    let frames = Frames::default().then(world.request(1, "tools/call slow"));
    world.end_without_server(frames).await;
}

async fn subscription(world: World) {
    let mut filter = SubscriptionFilter::default();
    filter.resource_subscriptions = Some(vec!["a:1".to_owned()]);
    let subscription = world.client.subscribe(filter).await.unwrap();
    world.seen.started(1).await;

    drop(subscription);

    world.seen.dropped(1).await;
    let frames = match world.column.is_modern() {
        true => Frames::default()
            .then(world.request(1, "subscriptions/listen"))
            .then("← notifications/subscriptions/acknowledged")
            .let_go(world.column, world.id(1), DROPPED),
        // There it is a request of its own that ends it.
        false => Frames::default()
            .then(world.request(1, "resources/subscribe a:1"))
            .then(world.result(1))
            .then(world.request(2, "resources/unsubscribe a:1"))
            .at_last(world.result(2)),
    };
    world.end(frames).await;
}

async fn leg_of_many_rounds(world: World) {
    let call = world.in_flight("asks").await;

    drop(call);

    world.seen.dropped(1).await;
    let frames = Frames::default()
        .then(world.request(1, "tools/call asks"))
        .then(world.result(1))
        .then(world.request(2, "tools/call asks"))
        .let_go(world.column, world.id(2), DROPPED);
    world.end(frames).await;
}

async fn pages(world: World) {
    let mut tools = world.client.list_tools().stream();
    assert!(tools.next().await.unwrap().is_ok());
    {
        let mut next = pin!(tools.next());
        until(&mut next, world.seen.started(1)).await;
    }

    drop(tools);

    world.seen.dropped(1).await;
    let frames = Frames::default()
        .then(world.request(1, "tools/list"))
        .then(world.result(1))
        .then(world.request(2, "tools/list"))
        .let_go(world.column, world.id(2), DROPPED);
    world.end(frames).await;
}

async fn question_of_a_handler(world: World) {
    let mut call = world.start("gives up");
    until(&mut call, world.host.started(1)).await;

    let frames = Frames::default()
        .then(world.request(1, "tools/call gives up"))
        .then("← 1 roots/list")
        .at_last(cancel('←', 1, DROPPED))
        .at_last(world.result(1));
    let frames = world.release("mine", frames).await;

    assert_eq!(call.await.unwrap().text(), "mine");
    world.host.dropped(1).await;
    world.end(frames).await;
}

/// Moves the clock on. It runs otherwise, for what happens in sockets and in other processes takes time.
async fn let_time_pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeforeItsFirstPoll => "dropped before its first poll",
            Self::BeforeAnyAnswer => "dropped after sending, before any answer",
            Self::WhileNotificationsStream => "dropped while notifications stream",
            Self::LostSelect => "`select!` lost",
            Self::OuterTimeout => "`tokio::time::timeout`",
            Self::IdleTimeout => "the call's own timeout, idle",
            Self::TotalTimeout => "the call's own timeout, total",
            Self::Cancelled => "`call.cancel(reason)`",
            Self::ClientDropped => "the client is dropped",
            Self::ServerDies => "the process at the other end dies",
            Self::Subscription => "a subscription is dropped",
            Self::LegOfManyRounds => "one leg of a multi-round-trip request is dropped",
            Self::Pages => "a page stream is dropped",
            Self::QuestionOfAHandler => "a handler drops its question to the client",
        })
    }
}

/// Longer than anything takes here, and shorter than the intervals at which connections look after themselves.
const LIMIT: Duration = Duration::from_secs(10);
const DROPPED: &str = "caller cancelled";
const TIMED_OUT: &str = "timed out after 10s";

const NOTHING_TO_MATCH_IN: &str = "without a session there is nothing to match a posted cancel in: the server accepts it and drops it";
const NO_OTHER_PROCESS: &str = "there is no process at the other end";
const JSON_IS_ONE_MESSAGE: &str = "an answer of type `application/json` is one message; what else a server says for a request needs a stream";
const ONE_ROUND: &str = "requests of many rounds came with 2026-07-28";
const SERVERS_DO_NOT_ASK: &str = "since 2026-07-28 servers send no requests";
