//! The rows: the ways to abandon a call.

use std::pin::{Pin, pin};
use std::time::Duration;

use bowline::Error;
use bowline::client::ChangeFilter;
use bowline::testing::{HandlerCounter, eventually};
use tokio::time::Instant;

use super::cell::{Cell, PARK_TIMEOUT};
use super::column::{Front, Upstream};

/// A way to abandon a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) name: &'static str,
    run: fn(Cell) -> Pin<Box<dyn Future<Output = ()>>>,
    not_applicable: fn(Front, Upstream) -> Option<&'static str>,
}

/// Creates a row from its name and the function that runs it in a cell.
macro_rules! way {
    ($name:literal, $run:ident) => {
        way!($name, $run, |_, _| None)
    };
    ($name:literal, $run:ident, $not_applicable:expr) => {
        Way {
            name: $name,
            run: |cell| Box::pin($run(cell)),
            not_applicable: $not_applicable,
        }
    };
}

impl Way {
    pub(crate) const ALL: &'static [Self] = &[
        way!("dropped before its first poll", before_its_first_poll),
        way!(
            "dropped after sending, before any response",
            before_any_response
        ),
        way!(
            "dropped while notifications stream",
            while_notifications_stream
        ),
        way!("`select!` lost", lost_select),
        way!("`tokio::time::timeout`", outer_timeout),
        way!("the call's own timeout, idle", idle_timeout),
        way!("the call's own timeout, total", total_timeout),
        way!("`call.cancel(reason)`", cancelled),
        way!("the client is dropped", client_dropped),
        way!("the server is lost", server_lost),
        way!("a subscription is dropped", subscription),
        way!(
            "dropped while the client is asked",
            while_asked,
            |front, upstream| no_elicitation(front, upstream)
        ),
        way!("a page stream is dropped", pages),
        way!(
            "a handler drops its request to the client",
            server_request,
            |front, upstream| match front.is_modern() || upstream.is_modern() {
                true => Some(NO_SERVER_REQUESTS),
                false => no_elicitation(front, upstream),
            }
        ),
        way!(
            "no timer delays the cancel",
            without_delay,
            |_, upstream| { upstream.is_process().then_some(RUNNING_CLOCK) }
        ),
    ];

    /// The reason, by the specification, why this way does not apply; `None` if it does.
    pub(crate) fn not_applicable(self, front: Front, upstream: Upstream) -> Option<&'static str> {
        (self.not_applicable)(front, upstream)
    }

    /// Abandons a call in this way, and asserts the consequences. The clock must be paused.
    pub(crate) async fn run(self, front: Front, upstream: Upstream) {
        (self.run)(Cell::open(front, upstream).await).await;
    }
}

async fn before_its_first_poll(cell: Cell) {
    drop(cell.client.call_tool("slow", ()).start());

    // Whether it was sent depends on the wire; what was sent is cancelled.
    cell.client.list_tools().await.unwrap();
    let counts = || cell.counters.handlers.counts();
    assert!(eventually(|| counts().started == counts().dropped).await);
    cell.end().await;
}

async fn before_any_response(cell: Cell) {
    let call = cell.in_flight("slow").await;

    drop(call);

    cell.expect_cancel("slow").await;
    cell.end().await;
}

async fn while_notifications_stream(cell: Cell) {
    let seen = HandlerCounter::default();
    let counter = seen.clone();
    let call = cell.client.call_tool("noisy", ()).on_progress(move |_| {
        let mut counts = counter.counts();
        counts.started += 1;
        counter.set(counts);
    });
    let mut call = cell.poll_into_handler(call.start()).await;
    tokio::select! {
        reply = &mut call => panic!("the call ended: {reply:?}"),
        _ = seen.wait_for(|counts| counts.started >= 3) => {}
    }

    drop(call);

    cell.expect_cancel("noisy").await;
    cell.end().await;
}

async fn lost_select(cell: Cell) {
    let slow = cell.client.call_tool("slow", ());
    let handlers = &cell.counters.handlers;

    tokio::select! {
        reply = slow => panic!("the call ended: {reply:?}"),
        _ = handlers.wait_for(|counts| counts.started == 1) => {}
    }

    cell.expect_cancel("slow").await;
    cell.end().await;
}

async fn outer_timeout(cell: Cell) {
    let call = cell.client.call_tool("slow", ()).start();

    let lost = timed_out(&cell, tokio::time::timeout(LIMIT, call)).await;

    assert!(lost.is_err());
    cell.expect_cancel("slow").await;
    cell.end().await;
}

async fn idle_timeout(cell: Cell) {
    let slow = cell.client.call_tool("slow", ());

    let lost = timed_out(&cell, slow.idle_timeout(LIMIT).start()).await;

    assert!(matches!(lost, Err(Error::Timeout { .. })), "{lost:?}");
    cell.expect_cancel("slow").await;
    cell.end().await;
}

async fn total_timeout(cell: Cell) {
    let slow = cell.client.call_tool("slow", ());

    let lost = timed_out(&cell, slow.timeout(LIMIT).start()).await;

    assert!(matches!(lost, Err(Error::Timeout { .. })), "{lost:?}");
    expect_reason(&cell, "timed out after 10s").await;
    cell.end().await;
}

/// Waits until the handler of a call runs, lets the time pass after which the call gives up, and returns its end.
async fn timed_out<T: std::fmt::Debug>(cell: &Cell, call: impl Future<Output = T>) -> T {
    let mut call = pin!(call);
    let handlers = &cell.counters.handlers;
    tokio::select! {
        ended = &mut call => panic!("the call ended: {ended:?}"),
        _ = handlers.wait_for(|counts| counts.started == 1) => {}
    }
    cell.pass(LIMIT).await;
    call.await
}

async fn cancelled(cell: Cell) {
    let call = cell.in_flight("slow").await;

    call.cancel("changed my mind");

    expect_reason(&cell, "changed my mind").await;
    cell.end().await;
}

/// Asserts that the reason of the client reaches the server, where both wires carry one.
async fn expect_reason(cell: &Cell, expected: &str) {
    let reason = cell.expect_cancel("slow").await;
    if let (Some(reason), true) = (reason, cell.front.carries_reason()) {
        assert_eq!(reason, expected);
    }
}

async fn client_dropped(cell: Cell) {
    let call = cell.in_flight("slow").await;

    cell.end_by_dropping_client(call).await;
}

async fn server_lost(mut cell: Cell) {
    let call = cell.in_flight("slow").await;

    cell.cut();

    for error in [
        call.await.unwrap_err().to_string(),
        cell.concurrent_error().await,
    ] {
        assert!(error.contains("upstream `upstream`"), "{error}");
    }
    cell.end_after_loss().await;
}

async fn subscription(cell: Cell) {
    let filter = ChangeFilter::new().resource("note:1");
    let subscription = cell.client.subscribe(filter).await.unwrap();
    let counts = || cell.counters.subscriptions.counts();
    assert!(eventually(|| counts().started == 1).await);
    assert_eq!(counts().dropped + counts().finished, 0);

    drop(subscription);

    assert!(eventually(|| counts().dropped + counts().finished == 1).await);
    let unsubscribed = usize::from(!cell.upstream.is_modern());
    assert_eq!(cell.received("resources/unsubscribe"), unsubscribed);
    cell.end().await;
}

async fn while_asked(cell: Cell) {
    let mut call = cell.client.call_tool("ask", ()).start();
    tokio::select! {
        reply = &mut call => panic!("the call ended: {reply:?}"),
        _ = cell.host.wait_for(|counts| counts.started == 1) => {}
    }

    drop(call);

    cell.host.wait_for(|counts| counts.dropped == 1).await;
    if cell.upstream.is_modern() {
        // The server has answered, and waits for nothing.
        cell.expect_no_cancel();
    } else {
        if cell.front.is_modern() {
            cell.pass(PARK_TIMEOUT).await; // its client cannot be heard before
        }
        cell.expect_cancel("ask").await;
    }
    cell.end().await;
}

async fn pages(cell: Cell) {
    let mut prompts = cell.client.list_prompts().stream();
    assert!(prompts.next().await.unwrap().is_ok());
    let handlers = &cell.counters.handlers;
    {
        let mut next = pin!(prompts.next());
        tokio::select! {
            page = &mut next => panic!("the page arrived: {page:?}"),
            _ = handlers.wait_for(|counts| counts.started == 1) => {}
        }
    }

    drop(prompts);

    handlers.wait_for(|counts| counts.dropped == 1).await;
    cell.end().await;
}

async fn server_request(cell: Cell) {
    let reply = cell.client.call_tool("gives up", ()).await.unwrap();

    assert_eq!(reply.text(), "gave up");
    cell.host.wait_for(|counts| counts.dropped == 1).await;
    cell.end().await;
}

/// With a paused clock, time passes only where a task waits for a timer.
async fn without_delay(cell: Cell) {
    let call = cell.in_flight("slow").await;
    // Until the heads of all responses have arrived, a client may have to wait with the cancel.
    tokio::time::advance(LIMIT).await;
    cell.client.list_tools().await.unwrap();
    let before = Instant::now();

    drop(call);

    let handlers = &cell.counters.handlers;
    handlers.wait_for(|counts| counts.dropped == 1).await;
    assert_eq!(before.elapsed(), Duration::ZERO);
    cell.end().await;
}

/// Why a way in which the client is asked does not apply.
fn no_elicitation(front: Front, upstream: Upstream) -> Option<&'static str> {
    match (front.has_elicitation(), upstream.has_elicitation()) {
        (true, true) => None,
        (false, _) => Some(NO_ELICITATION),
        (true, false) => Some(NO_QUESTIONS),
    }
}

const LIMIT: Duration = Duration::from_secs(10);

const NO_ELICITATION: &str = "the version of the client has no elicitation";
const NO_QUESTIONS: &str = "the version of the server has no elicitation";
const RUNNING_CLOCK: &str =
    "the clock of another process cannot be paused; the same wire in memory has this cell";
const NO_SERVER_REQUESTS: &str =
    "since 2026-07-28 servers send no requests: a question is a result, which cannot be withdrawn";
