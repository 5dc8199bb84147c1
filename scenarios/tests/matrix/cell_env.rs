//! The environment of a cell: a connected client and server, and the assertions at the end of the cell.
//!
//! A concurrent call is in flight on the same connection from beginning to end. However the cell ends, the concurrent
//! call gets its own result, a next call works, and no resource leaks.

use bowline::testing::{ResourceCounts, eventually};
use bowline::{Call, Client, Error, Reply, RequestId, Result};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::column::{AbandonSignal, Column};
use crate::expected_frames::{ExpectedFrames, cancel};
use crate::handler_monitor::slow_host;
use crate::observer::{Observer, WAIT_LIMIT};
use crate::server_end::{ServerEnd, ServerLocation, serve_and_connect};
use crate::tools::Extensions;

/// A client, a server, and a concurrent call.
pub(crate) struct CellEnv {
    pub(crate) column: Column,
    pub(crate) client: Client,
    /// Records the frames and handlers of the server.
    pub(crate) observer: Observer,
    /// Records the handlers of the client's host.
    pub(crate) host: Observer,
    before: ResourceCounts,
    server_end: ServerEnd,
    concurrent_call: JoinHandle<Result<Reply>>,
    concurrent_id: i64,
}

impl CellEnv {
    pub(crate) async fn open(column: Column) -> Self {
        Self::open_in(ServerLocation::ThisProcess, column, &Extensions::None).await
    }

    pub(crate) async fn open_in(
        location: ServerLocation,
        column: Column,
        extensions: &Extensions,
    ) -> Self {
        let before = ResourceCounts::now();
        let observer = Observer::default();
        let (connect, server_end) =
            serve_and_connect(column, location, extensions, &observer).await;
        let connect = extensions.add_to_client(connect);
        let connect = connect
            .protocol_version(column.dialect.version)
            .idle_timeout(WAIT_LIMIT);
        let host = Observer::default();
        let connect = connect.host(slow_host(&host.handlers));
        let client = connect.await.unwrap();
        let call = client
            .call_tool("slow", json!({"name": "concurrent"}))
            .idle_timeout(WAIT_LIMIT * 100)
            .start();
        let concurrent_id = numeric_id(&call);
        let concurrent_call = tokio::spawn(call);
        observer.wait_for_starts(1).await;
        if column.opens_get_stream() {
            let is_open = || observer.frames().contains(&"→ GET".to_owned());
            assert!(eventually(is_open).await, "{:?}", observer.frames());
        }
        observer.clear();
        Self {
            column,
            client,
            observer,
            host,
            before,
            server_end,
            concurrent_call,
            concurrent_id,
        }
    }

    /// Starts a call of `tool`.
    pub(crate) fn start(&self, tool: &str) -> Call {
        self.client.call_tool(tool, json!({"name": "mine"})).start()
    }

    /// Starts a call of `tool` and waits until its handler is running.
    pub(crate) async fn in_flight(&self, tool: &str) -> Call {
        let mut call = self.start(tool);
        self.poll_into_handler(&mut call).await;
        call
    }

    /// Polls `call` until its handler is running.
    pub(crate) async fn poll_into_handler(
        &self,
        call: &mut (impl Future<Output: std::fmt::Debug> + Unpin),
    ) {
        let started = self.observer.counts().started;
        poll_until(call, self.observer.wait_for_starts(started + 1)).await;
    }

    /// The id of the cell's `nth` request, counted from 1.
    pub(crate) fn id(&self, nth: i64) -> i64 {
        self.concurrent_id + nth
    }

    /// The summarized frame of the `nth` request.
    pub(crate) fn request(&self, nth: i64, what: &str) -> String {
        format!("→ {} {what}", self.id(nth))
    }

    /// The summarized result frame of the `nth` request.
    pub(crate) fn result(&self, nth: i64) -> String {
        format!("← {} result", self.id(nth))
    }

    /// The frames of the `nth` request, a call of `tool` that was abandoned.
    pub(crate) fn abandoned(&self, nth: i64, tool: &str, reason: &str) -> ExpectedFrames {
        let called =
            ExpectedFrames::default().then(self.request(nth, &format!("tools/call {tool}")));
        called.abandoned(self.column, self.id(nth), reason)
    }

    /// Lets the handlers called with this name finish, and adds the frames of the `release` call.
    pub(crate) async fn release(&self, name: &str, frames: ExpectedFrames) -> ExpectedFrames {
        let release = self.client.call_tool("release", json!({"name": name}));
        await_release(release.start(), frames).await
    }

    /// The same with the id of the cell's first request, which must be free again.
    async fn release_with_first_id(&self, name: &str, frames: ExpectedFrames) -> ExpectedFrames {
        let release = self.client.call_tool("release", json!({"name": name}));
        await_release(release.id(self.id(1)).start(), frames).await
    }

    /// Kills the server without a graceful shutdown.
    pub(crate) async fn kill_server(&mut self) {
        self.server_end.kill(&self.observer).await;
    }

    /// Ends the cell: asserts that exactly `frames` were sent, that the concurrent call works and that nothing leaked.
    pub(crate) async fn end(mut self, frames: ExpectedFrames) {
        let mut frames = self.release_with_first_id("concurrent", frames).await;
        let concurrent = (&mut self.concurrent_call).await.unwrap().unwrap();
        assert_eq!(concurrent.text(), "concurrent");
        frames = frames.unordered(format!("← {} result", self.concurrent_id));
        if let Some(near) = self.client.peer() {
            assert!(eventually(|| near.is_idle()).await, "{near:?}");
        }
        let server_end = &self.server_end;
        assert!(
            eventually(|| server_end.entries() == 0).await,
            "{server_end:?}"
        );
        self.client.close().await.unwrap();
        let frames = with_final_delete(self.column, frames);
        shut_down_and_compare(self.column, self.server_end, &self.observer, &frames).await;
        assert_nothing_is_left(&self.observer, &self.host, self.before).await;
    }

    /// As [`CellEnv::end`], without comparing the frames.
    pub(crate) async fn end_ignoring_frames(mut self) {
        self.release("concurrent", ExpectedFrames::default()).await;
        let concurrent = (&mut self.concurrent_call).await.unwrap().unwrap();
        assert_eq!(concurrent.text(), "concurrent");
        self.client.close().await.unwrap();
        self.server_end.shut_down().await;
        assert_nothing_is_left(&self.observer, &self.host, self.before).await;
    }

    /// As [`CellEnv::end`], by dropping the client and its calls.
    pub(crate) async fn end_by_dropping_client(self, call: Call, frames: ExpectedFrames) {
        let frames = self.expect_concurrent_drop(frames);
        drop((self.client, call));
        self.concurrent_call.abort();
        self.observer.wait_for_drops(2).await;
        shut_down_and_compare(self.column, self.server_end, &self.observer, &frames).await;
        assert_nothing_is_left(&self.observer, &self.host, self.before).await;
    }

    fn expect_concurrent_drop(&self, frames: ExpectedFrames) -> ExpectedFrames {
        let abandoned = |frames: ExpectedFrames, id: i64| match self.column.signal() {
            AbandonSignal::None => frames,
            AbandonSignal::Cancel => frames.unordered(cancel('→', id, "caller cancelled")),
            AbandonSignal::Close => frames.unordered(format!("→ closes {id}")),
            AbandonSignal::CancelAndEnd => frames
                .unordered(cancel('→', id, "caller cancelled"))
                .optional(format!("← {id} error -32800")),
        };
        let frames = abandoned(frames, self.id(1));
        with_final_delete(self.column, abandoned(frames, self.concurrent_id))
    }

    /// As [`CellEnv::end`], after the server was killed: the concurrent call fails.
    pub(crate) async fn end_without_server(self, frames: ExpectedFrames) {
        let before = self.before;
        self.end_inside_of_another(frames).await;
        assert_restored(before).await;
    }

    /// As [`CellEnv::end_without_server`], inside of another environment that was opened before this one and compares
    /// the resources at its end.
    pub(crate) async fn end_inside_of_another(mut self, frames: ExpectedFrames) {
        let concurrent = (&mut self.concurrent_call).await.unwrap();
        assert!(is_connection_loss(&concurrent), "{concurrent:?}");
        let next = self.client.call_tool("release", json!({"name": ""})).await;
        assert!(is_connection_loss(&next), "{next:?}");
        if let Some(near) = self.client.peer() {
            assert!(near.is_idle(), "{near:?}");
        }
        self.client.close().await.unwrap();
        shut_down_and_compare(self.column, self.server_end, &self.observer, &frames).await;
    }
}

/// Whether a call failed because the connection was lost.
pub(crate) fn is_connection_loss(reply: &Result<Reply>) -> bool {
    matches!(reply, Err(Error::Closed | Error::Transport { .. }))
}

/// Polls `call` until `event` completes; panics if the call completes first.
pub(crate) async fn poll_until(
    call: &mut (impl Future<Output: std::fmt::Debug> + Unpin),
    event: impl Future<Output = ()>,
) {
    tokio::select! {
        reply = call => panic!("the call ended: {reply:?}"),
        () = event => {}
    }
}

async fn await_release(call: Call, frames: ExpectedFrames) -> ExpectedFrames {
    let id = numeric_id(&call);
    assert_eq!(call.await.unwrap().text(), "released");
    frames
        .unordered(format!("→ {id} tools/call release"))
        .unordered(format!("← {id} result"))
}

/// Adds the DELETE with which a client ends its session.
fn with_final_delete(column: Column, frames: ExpectedFrames) -> ExpectedFrames {
    match column.opens_get_stream() {
        true => frames.unordered("→ DELETE"),
        false => frames,
    }
}

/// Shuts the server down, and asserts that exactly `frames` were recorded.
async fn shut_down_and_compare(
    column: Column,
    server_end: ServerEnd,
    observer: &Observer,
    frames: &ExpectedFrames,
) {
    let frames = frames.clone().on_wire(column);
    eventually(|| frames.matches(&observer.frames())).await;
    server_end.shut_down().await;
    let recorded = observer.frames();
    assert!(
        frames.matches(&recorded),
        "expected {frames:#?}, got {recorded:#?}"
    );
}

async fn assert_nothing_is_left(observer: &Observer, host: &Observer, before: ResourceCounts) {
    let running = |observer: &Observer| {
        let counts = observer.counts();
        counts.started as isize - (counts.dropped + counts.finished) as isize
    };
    // The concurrent call started before the counters were cleared. The last report of another process may be unread.
    let is_idle = eventually(|| (running(observer), running(host)) == (-1, 0)).await;
    assert!(is_idle, "{:?} {:?}", observer.counts(), host.counts());
    assert_restored(before).await;
}

/// Asserts that the process holds as many resources as before; waits for tasks and sockets that are closing.
async fn assert_restored(before: ResourceCounts) {
    eventually(|| ResourceCounts::now() == before).await;
    assert_eq!(
        ResourceCounts::now(),
        before,
        "resources leaked, or missing"
    );
}

fn numeric_id(call: &Call) -> i64 {
    match call.id() {
        Some(RequestId::Number(id)) => *id,
        other => panic!("expected a numeric id, got {other:?}"),
    }
}
