//! [`Mock`]: a server that answers as a recorded one did.
//!
//! ```text
//! request ──▶ equal request in the recording ──▶ its notifications ──▶ its questions ──▶ its answer
//!        └──▶ none: an error that names the nearest                        │
//!                                                                          └─ the client's answers choose
//!                                                                             among recorded continuations
//! ```

mod continuation;

mod faults;
use faults::Faults;
pub use faults::{DropAfter, InjectedFailure, Latency};

mod introduction;

mod listen;

mod play;

mod serve;

mod tasks;

mod unmatched;
pub use unmatched::Unmatched;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline::Context;
use bowline::exchange::{
    BoxFuture, Dialects, Notification, NotifiedContext, Outcome, Params, Request, Responder,
};
use bowline::telemetry::Telemetry;

use crate::conversation::{Conversation, RequestKey};
use crate::{ReadError, Recording};
use introduction::Introduction;
use tasks::TaskOutcomes;

/// A server that answers as a recorded one did, for clients of every protocol version, whatever the version of the
/// recording. Clones are the same server.
///
/// A request is answered like the recorded one with the same method and the same params. If there were several, they
/// are answered in their order, and the last answer repeats. Each connection begins with the first; requests over HTTP
/// of 2026-07-28 have no connection, and count together. Questions are asked as the client's version defines, and its
/// answers select the recorded call that goes on in the same way: the one with an equal answer, or else one in which the
/// user did the same (accept, decline, cancel). A request that was cancelled or not answered is not answered here either.
///
/// A request that was never recorded gets an error that names the nearest recorded one; see
/// [`unmatched`](Self::unmatched).
///
/// # Examples
///
/// A test of a client, with what its server once answered:
///
/// ```
/// use bowline::Client;
/// use bowline_recording::{Mock, Recording};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Written by `bowline tap --record`; usually `Mock::from_file("tests/server.jsonl")?`.
/// let recording = Recording::parse(concat!(
///     r#"{"format":"bowline-recording","version":1,"started":"2026-07-28T12:00:00Z","transport":"stdio"}"#, "\n",
///     r#"{"at":1,"connection":1,"event":"message","from":"client","message":{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"editor","version":"1"}}}}"#, "\n",
///     r#"{"at":2,"connection":1,"event":"message","from":"server","message":{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"clock","version":"1"}}}}"#, "\n",
///     r#"{"at":3,"connection":1,"event":"message","from":"client","message":{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"now","arguments":{"zone":"UTC"}}}}"#, "\n",
///     r#"{"at":9,"connection":1,"event":"message","from":"server","message":{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"noon"}]}}}"#, "\n",
/// ).as_bytes())?;
/// let mock = Mock::new(&recording);
///
/// let client = Client::in_process(&mock).protocol_version("2026-07-28").await?;
/// let now = client.call_tool("now", serde_json::json!({"zone": "UTC"})).await?;
///
/// assert_eq!(now.text(), "noon");
/// assert!(mock.unmatched().is_empty());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Mock {
    inner: Arc<MockInner>,
}

/// The builder of a [`Mock`], with faults.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline_recording::{InjectedFailure, Latency, Mock, Recording};
///
/// # fn example(recording: &Recording) -> Mock {
/// Mock::builder(recording)
///     .latency(Latency::Fixed(Duration::from_millis(200)))
///     .fail(InjectedFailure::rate(0.1).method("tools/call"))
///     .seed(7)
///     .build()
/// # }
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct MockBuilder {
    conversation: Conversation,
    faults: Faults,
    served: Dialects,
    on_unmatched: Option<OnUnmatched>,
}

type OnUnmatched = Box<dyn Fn(&Unmatched) + Send + Sync>;

struct MockInner {
    conversation: Conversation,
    introduction: Introduction,
    /// The recorded requests, each with the indices of its scripts in their order.
    index: BTreeMap<RequestKey, Vec<usize>>,
    tasks: TaskOutcomes,
    faults: Faults,
    served: Dialects,
    /// How often each request came on no connection.
    uses: RequestUses,
    unmatched: Mutex<Vec<Unmatched>>,
    on_unmatched: Option<OnUnmatched>,
}

/// How often each request came.
#[derive(Debug, Default)]
struct RequestUses(Mutex<BTreeMap<RequestKey, usize>>);

impl RequestUses {
    /// Returns how often the request came before.
    fn next(&self, key: &RequestKey) -> usize {
        let mut uses = lock(&self.0);
        if let Some(count) = uses.get_mut(key) {
            *count += 1;
            return *count - 1;
        }
        // Clients decide about the keys of subscriptions.
        if uses.len() < MAX_COUNTED {
            uses.insert(key.clone(), 1);
        }
        0
    }
}

impl Mock {
    /// Creates a mock of the server in a recording.
    #[must_use]
    pub fn new(recording: &Recording) -> Self {
        Self::builder(recording).build()
    }

    /// Creates a mock of the server in a file that `bowline tap --record` wrote.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is not a recording.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use bowline::Client;
    /// use bowline_recording::Mock;
    ///
    /// let client = Client::in_process(&Mock::from_file("tests/server.jsonl")?).await?;
    /// # Ok(()) }
    /// ```
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        Ok(Self::new(&Recording::open(path)?))
    }

    /// Returns the builder of a mock with faults.
    pub fn builder(recording: &Recording) -> MockBuilder {
        MockBuilder {
            conversation: Conversation::of(recording),
            faults: Faults::default(),
            served: Dialects::all(),
            on_unmatched: None,
        }
    }

    /// Returns the requests that the recording does not have, in the order in which they came; at most 1,000.
    #[must_use]
    pub fn unmatched(&self) -> Vec<Unmatched> {
        lock(&self.inner.unmatched).clone()
    }

    /// Returns the number of requests in the recording that this server can answer. A request over several rounds counts
    /// as one.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.inner.conversation.scripts.len()
    }
}

impl MockBuilder {
    /// Sets how long the mock takes to answer. Defaults to no longer than necessary.
    pub fn latency(mut self, latency: Latency) -> Self {
        self.faults.latency = latency;
        self
    }

    /// Adds a failure. Of several that concern a request, the first one applies.
    pub fn fail(mut self, failure: InjectedFailure) -> Self {
        self.faults.failures.push(failure);
        self
    }

    /// Sets when the connections that the mock [serves](Mock::serve) are closed. It has no effect in process, where
    /// there is no connection.
    pub fn drop_after(mut self, drop_after: DropAfter) -> Self {
        self.faults.drop_after = Some(drop_after);
        self
    }

    /// Sets the seed that decides which requests fail. Defaults to 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.faults.seed = seed;
        self
    }

    /// Sets the protocol versions that the mock serves. Defaults to all. A client in process chooses its own.
    pub fn versions(mut self, served: Dialects) -> Self {
        self.served = served;
        self
    }

    /// Calls a function for each request that the recording does not have.
    pub fn on_unmatched(mut self, notice: impl Fn(&Unmatched) + Send + Sync + 'static) -> Self {
        self.on_unmatched = Some(Box::new(notice));
        self
    }

    /// Creates the mock.
    #[must_use]
    pub fn build(self) -> Mock {
        let mut index: BTreeMap<RequestKey, Vec<usize>> = BTreeMap::new();
        for (at, script) in self.conversation.scripts.iter().enumerate() {
            index.entry(script.key.clone()).or_default().push(at);
        }
        let inner = MockInner {
            introduction: Introduction::of(&self.conversation, &self.served),
            tasks: TaskOutcomes::of(&self.conversation.scripts),
            index,
            conversation: self.conversation,
            faults: self.faults,
            served: self.served,
            uses: RequestUses::default(),
            unmatched: Mutex::default(),
            on_unmatched: self.on_unmatched,
        };
        Mock {
            inner: Arc::new(inner),
        }
    }
}

impl MockInner {
    async fn respond(&self, request: Request, cx: &Context) -> Outcome {
        match &*request.method {
            "server/discover" => self.introduce(&request, cx).await,
            "subscriptions/listen" => self.listen(&request, cx).await,
            _ => self.call(request, cx).await,
        }
    }

    /// Returns how often an equal request came before on the same connection.
    fn count_use(&self, key: &RequestKey, cx: &Context) -> usize {
        match cx.connection_state() {
            Some(state) => state.get_or_insert_with(RequestUses::default).next(key),
            None => self.uses.next(key),
        }
    }

    /// Reports something that the recording does not have, and returns its error.
    fn report(&self, unmatched: Unmatched) -> bowline::RpcError {
        tracing::debug!("{}", unmatched.message);
        if let Some(notice) = &self.on_unmatched {
            notice(&unmatched);
        }
        let error = unmatched.to_rpc_error();
        let mut reported = lock(&self.unmatched);
        if reported.len() < MAX_UNMATCHED {
            reported.push(unmatched);
        }
        error
    }
}

impl Responder for Mock {
    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome> {
        Box::pin(async move { self.inner.respond(request, &cx).await })
    }

    fn required_scopes(&self, _: &str, _: Option<&Params>) -> Vec<String> {
        Vec::new()
    }

    fn check(&self) -> bowline::Result<()> {
        Ok(())
    }

    fn notified(&self, _: &Notification, _: &NotifiedContext) {}

    fn telemetry(&self) -> Option<&Telemetry> {
        None
    }

    fn open_calls(&self) -> usize {
        0
    }
}

impl fmt::Debug for Mock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mock")
            .field("requests", &self.requests())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for MockBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockBuilder")
            .field("faults", &self.faults)
            .field("served", &self.served)
            .finish_non_exhaustive()
    }
}

/// Locks a mutex. Nothing that could panic runs under the locks of a mock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many different requests of a connection are counted.
const MAX_COUNTED: usize = 100_000;
/// How many requests that the recording does not have are kept.
const MAX_UNMATCHED: usize = 1000;
