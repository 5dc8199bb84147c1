//! A client and a server that are connected and busy, and what must hold when a cell is over.
//!
//! In every world a bystander's call is in flight from beginning to end, on the same connection. However a
//! cell ends, the bystander gets its own result, a next call works, and nothing is left.

use bowline::{Call, Client, Error, Reply, RequestId, Result};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::column::{Column, Signal};
use crate::far_end::{FarEnd, Place, reach};
use crate::frames::Frames;
use crate::holdings::{Holdings, eventually};
use crate::seen::{PATIENCE, Seen};
use crate::tools::Host;

/// A client, a server, and a bystander.
pub(crate) struct World {
    pub(crate) column: Column,
    pub(crate) client: Client,
    /// What is seen of the server.
    pub(crate) seen: Seen,
    /// What becomes of the handlers of the client's host.
    pub(crate) host: Seen,
    before: Holdings,
    far_end: FarEnd,
    bystander: JoinHandle<Result<Reply>>,
    bystander_id: i64,
}

impl World {
    pub(crate) async fn open(column: Column, host: Host) -> Self {
        Self::open_at(Place::Here, column, host).await
    }

    pub(crate) async fn open_at(place: Place, column: Column, host: Host) -> Self {
        let before = Holdings::now();
        let seen = Seen::here();
        let (connect, far_end) = reach(column, place, &seen).await;
        let connect = connect.speaking(column.dialect.version).timeout(PATIENCE);
        let client = connect.host(host.clone()).await.unwrap();
        let call = client
            .call_tool("slow", json!({"name": "bystander"}))
            .timeout(PATIENCE * 100)
            .start();
        let bystander_id = number(&call);
        let bystander = tokio::spawn(call);
        seen.started(1).await;
        if column.listens() {
            let listens = || seen.frames().contains(&"→ GET".to_owned());
            assert!(eventually(listens).await, "{:?}", seen.frames());
        }
        seen.forget();
        Self {
            column,
            client,
            seen,
            host: host.seen,
            before,
            far_end,
            bystander,
            bystander_id,
        }
    }

    /// Starts a call of `tool`.
    pub(crate) fn start(&self, tool: &str) -> Call {
        self.client.call_tool(tool, json!({"name": "mine"})).start()
    }

    /// A call of `tool` whose handler is at work.
    pub(crate) async fn in_flight(&self, tool: &str) -> Call {
        let mut call = self.start(tool);
        self.run_into_handler(&mut call).await;
        call
    }

    /// Polls `call` until its handler is at work.
    pub(crate) async fn run_into_handler(
        &self,
        call: &mut (impl Future<Output: std::fmt::Debug> + Unpin),
    ) {
        let started = self.seen.tally().started;
        until(call, self.seen.started(started + 1)).await;
    }

    /// The id of the cell's `nth` request, counted from 1.
    pub(crate) fn id(&self, nth: i64) -> i64 {
        self.bystander_id + nth
    }

    /// The frame of the `nth` request, in short.
    pub(crate) fn request(&self, nth: i64, what: &str) -> String {
        format!("→ {} {what}", self.id(nth))
    }

    /// The frame that answers the `nth` request, in short.
    pub(crate) fn result(&self, nth: i64) -> String {
        format!("← {} result", self.id(nth))
    }

    /// The frames of the `nth` request, if it is a call of `tool` that was let go of.
    pub(crate) fn let_go(&self, nth: i64, tool: &str, reason: &str) -> Frames {
        let called = Frames::default().then(self.request(nth, &format!("tools/call {tool}")));
        called.let_go(self.column, self.id(nth), reason)
    }

    /// Lets the handlers that were called with this name finish, and returns what passed for that.
    pub(crate) async fn release(&self, name: &str, frames: Frames) -> Frames {
        let release = self.client.call_tool("release", json!({"name": name}));
        releasing(release.start(), frames).await
    }

    /// The same by a call that has the id of the cell's first request, which must be free again.
    async fn release_by_the_first_id(&self, name: &str, frames: Frames) -> Frames {
        let release = self.client.call_tool("release", json!({"name": name}));
        releasing(release.id(self.id(1)).start(), frames).await
    }

    /// Kills the server, without a word.
    pub(crate) async fn kill_server(&mut self) {
        self.far_end.kill(&self.seen).await;
    }

    /// Asserts what must hold at the end of a cell, and that `frames` are all that passed.
    pub(crate) async fn end(mut self, frames: Frames) {
        let mut frames = self.release_by_the_first_id("bystander", frames).await;
        let bystander = (&mut self.bystander).await.unwrap().unwrap();
        assert_eq!(bystander.text(), "bystander");
        frames = frames.at_last(format!("← {} result", self.bystander_id));
        if let Some(near) = self.client.peer() {
            assert!(eventually(|| near.is_idle()).await, "{near:?}");
        }
        let far_end = &self.far_end;
        assert!(eventually(|| far_end.entries() == 0).await, "{far_end:?}");
        self.client.close().await.unwrap();
        let frames = farewell(self.column, frames);
        leave(self.column, self.far_end, &self.seen, &frames).await;
        assert_all_handlers_are_gone(&self.seen, &self.host);
        self.before.assert_nothing_is_left().await;
    }

    /// As [`World::end`], where somebody else has looked at what passed.
    pub(crate) async fn end_whatever_passed(mut self) {
        self.release("bystander", Frames::default()).await;
        let bystander = (&mut self.bystander).await.unwrap().unwrap();
        assert_eq!(bystander.text(), "bystander");
        self.client.close().await.unwrap();
        self.far_end.leave().await;
        assert_all_handlers_are_gone(&self.seen, &self.host);
        self.before.assert_nothing_is_left().await;
    }

    /// As [`World::end`], where the client is dropped with all that it does.
    pub(crate) async fn end_by_dropping(self, call: Call, frames: Frames) {
        let frames = self.drop_bystander(frames);
        drop((self.client, call));
        self.bystander.abort();
        self.seen.dropped(2).await;
        leave(self.column, self.far_end, &self.seen, &frames).await;
        assert_all_handlers_are_gone(&self.seen, &self.host);
        self.before.assert_nothing_is_left().await;
    }

    fn drop_bystander(&self, frames: Frames) -> Frames {
        let let_go = |frames: Frames, id: i64| match self.column.signal() {
            Signal::None => frames,
            Signal::Cancel => frames.at_last(crate::frames::cancel('→', id, "caller cancelled")),
            Signal::Close => frames.at_last(format!("→ closes {id}")),
            Signal::CancelAndEnd => frames
                .at_last(crate::frames::cancel('→', id, "caller cancelled"))
                .perhaps(format!("← {id} error -32800")),
        };
        let frames = let_go(frames, self.id(1));
        farewell(self.column, let_go(frames, self.bystander_id))
    }

    /// As [`World::end`], where the server is gone and the bystander's call with it.
    pub(crate) async fn end_without_server(mut self, frames: Frames) {
        let bystander = (&mut self.bystander).await.unwrap();
        assert!(is_loss(&bystander), "{bystander:?}");
        let next = self.client.call_tool("release", json!({"name": ""})).await;
        assert!(is_loss(&next), "{next:?}");
        if let Some(near) = self.client.peer() {
            assert!(near.is_idle(), "{near:?}");
        }
        self.client.close().await.unwrap();
        leave(self.column, self.far_end, &self.seen, &frames).await;
        self.before.assert_nothing_is_left().await;
    }
}

/// Whether a call ended because the other side went away.
pub(crate) fn is_loss(reply: &Result<Reply>) -> bool {
    matches!(reply, Err(Error::Closed | Error::Transport { .. }))
}

/// Polls `call` until something else has happened.
pub(crate) async fn until(
    call: &mut (impl Future<Output: std::fmt::Debug> + Unpin),
    happened: impl Future<Output = ()>,
) {
    tokio::select! {
        reply = call => panic!("the call ended: {reply:?}"),
        () = happened => {}
    }
}

async fn releasing(call: Call, frames: Frames) -> Frames {
    let id = number(&call);
    assert_eq!(call.await.unwrap().text(), "released");
    frames
        .at_last(format!("→ {id} tools/call release"))
        .at_last(format!("← {id} result"))
}

/// Adds how a client says goodbye.
fn farewell(column: Column, frames: Frames) -> Frames {
    match column.listens() {
        true => frames.at_last("→ DELETE"),
        false => frames,
    }
}

/// Lets the server go, and asserts that `frames` are all that passed.
async fn leave(column: Column, far_end: FarEnd, seen: &Seen, frames: &Frames) {
    let frames = frames.clone().over(column);
    eventually(|| frames.are(&seen.frames())).await;
    far_end.leave().await;
    let passed = seen.frames();
    assert!(
        frames.are(&passed),
        "expected {frames:#?}, and saw {passed:#?}"
    );
}

fn assert_all_handlers_are_gone(seen: &Seen, host: &Seen) {
    // The bystander started before the count began.
    let (tally, host) = (seen.tally(), host.tally());
    assert_eq!(
        tally.started + 1,
        tally.dropped + tally.finished,
        "{tally:?}"
    );
    assert_eq!(host.started, host.dropped + host.finished, "{host:?}");
}

fn number(call: &Call) -> i64 {
    match call.id() {
        Some(RequestId::Number(id)) => *id,
        other => panic!("a minted id is a number, not {other:?}"),
    }
}
