//! [`Questions`]: which client a question of a legacy server is for.
//!
//! A *question* is a request of the server: for input of the user, for a completion of a model, or for the roots. A
//! legacy server asks on its connection, and does not say for which call:
//!
//! ```text
//! question ─┬─ it names a task ───────────────────────────▶ the client of that task
//!           ├─ the transport knows the call ─────────────▶ the client of that call
//!           ├─ the connection belongs to one client ─────▶ that client, outside of its calls
//!           ├─ other calls are in flight ────────────────▶ refused
//!           ├─ it may be about a call that was abandoned ▶ refused
//!           └─ no call is in flight ─────────────────────▶ held for the next call, for a while
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline::exchange::{
    BoxFuture, InputKind, Notification, NotifiedContext, Outcome, Params, RawInputRequest, Request,
    Responder,
};
use bowline::telemetry::Telemetry;
use bowline::{Context, ErrorCode, Json, RequestId, RpcError};
use tokio::sync::oneshot;

use crate::tasks::related_task;

/// A client that can be asked.
pub(crate) trait AskClient: Send + Sync + 'static {
    /// Returns the answer. Dropping the future withdraws the question.
    fn ask(&self, question: RawInputRequest) -> BoxFuture<'_, Outcome>;

    /// Returns whether it can be asked now, and not only later.
    fn is_ready(&self) -> bool {
        true
    }
}

/// The questions of one connection to an upstream, and who can answer them.
pub(crate) struct Questions {
    upstream: Arc<str>,
    /// The limit that an error names, if calls share the connection because of it.
    max_connections: usize,
    /// The client to which the whole connection belongs: the one behind a legacy connection of the front.
    owner: Option<Arc<dyn AskClient>>,
    state: Mutex<QuestionsState>,
}

#[derive(Default)]
struct QuestionsState {
    calls: BTreeMap<RequestId, Arc<dyn AskClient>>,
    /// By the ids of tasks.
    tasks: BTreeMap<Arc<str>, Arc<dyn AskClient>>,
    held: Vec<HeldQuestion>,
    /// Whether a call was abandoned. The server may ignore the cancel, and ask about it at any later time.
    has_abandoned: bool,
}

/// A question that was asked while no call was in flight. Closed once the server does not wait any more.
type HeldQuestion = oneshot::Sender<Arc<dyn AskClient>>;

impl Questions {
    pub(crate) fn new(
        upstream: Arc<str>,
        max_connections: usize,
        owner: Option<Arc<dyn AskClient>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            upstream,
            max_connections,
            owner,
            state: Mutex::default(),
        })
    }

    /// Returns whether the whole connection belongs to one client.
    pub(crate) fn has_owner(&self) -> bool {
        self.owner.is_some()
    }

    /// Starts a call with `open`, and makes `client` the one that is asked about it. The server cannot ask in between:
    /// its question waits for the lock.
    pub(crate) fn register<T>(
        self: &Arc<Self>,
        client: Arc<dyn AskClient>,
        open: impl FnOnce() -> T,
        id: impl FnOnce(&T) -> Option<RequestId>,
    ) -> (T, RegisteredCall) {
        let mut state = self.lock();
        let opened = open();
        let id = id(&opened);
        if let Some(id) = &id {
            state.calls.insert(id.clone(), client);
        }
        let registered = RegisteredCall {
            questions: self.clone(),
            id,
        };
        (opened, registered)
    }

    /// Makes `client` the one that is asked about a task.
    pub(crate) fn register_task(
        self: &Arc<Self>,
        id: Arc<str>,
        client: Arc<dyn AskClient>,
    ) -> RegisteredTask {
        let replaced = self.lock().tasks.insert(id.clone(), client.clone());
        drop(replaced); // not under the lock
        RegisteredTask {
            questions: self.clone(),
            id,
            client,
        }
    }

    /// Records that the client of a call does not wait any more, while the server may still work on it.
    pub(crate) fn call_abandoned(&self) {
        self.lock().has_abandoned = true;
    }

    /// Puts the questions that wait for the next call to `client`. Returns whether there are any.
    pub(crate) fn release_held(&self, client: impl FnOnce() -> Arc<dyn AskClient>) -> bool {
        let mut held = std::mem::take(&mut self.lock().held);
        held.retain(|question| !question.is_closed());
        if held.is_empty() {
            return false;
        }
        let client = client();
        let sent = held
            .into_iter()
            .map(|held| held.send(client.clone()).is_ok());
        sent.fold(false, |any, sent| any | sent)
    }

    async fn answer(&self, within: Option<RequestId>, question: RawInputRequest) -> Outcome {
        let task = question.params.as_ref().and_then(related_task);
        match self.place(within.as_ref(), task.as_deref(), question.kind) {
            Placed::Client(client) => {
                let outcome = client.ask(question.clone()).await;
                if outcome.is_err() && self.waits_for_next_call(within.as_ref(), &question) {
                    return self.hold(question).await;
                }
                outcome
            }
            Placed::Unknown => {
                tracing::warn!(
                    upstream = %self.upstream,
                    question = %question.kind,
                    max_connections = self.max_connections,
                    "refused a question: several calls share the connection, and the server does not say which of \
                     them it is about; raise the limit of connections"
                );
                Err(refused(
                    "the bridge cannot tell which call this request is about",
                ))
            }
            Placed::Nowhere => Err(refused("no call waits for this request")),
            Placed::Held => self.hold(question).await,
        }
    }

    fn place(&self, within: Option<&RequestId>, task: Option<&str>, kind: InputKind) -> Placed {
        let state = self.lock();
        if let Some(client) = task.and_then(|id| state.tasks.get(id)) {
            return Placed::Client(client.clone());
        }
        if let Some(client) = within.and_then(|id| state.calls.get(id)) {
            return Placed::Client(client.clone());
        }
        if let Some(owner) = &self.owner {
            // Not in one of its calls: the question may be about any of them, and would end with that one. If there is no
            // other way to the client yet, a call is better than a wait.
            let call = || state.calls.values().next_back();
            let client = (!owner.is_ready()).then(call).flatten();
            return Placed::Client(client.unwrap_or(owner).clone());
        }
        // Roots are those of the client, whatever call they are about.
        if kind != InputKind::Roots && (within.is_some() || state.has_abandoned) {
            return Placed::Nowhere;
        }
        match state.calls.is_empty() {
            true => Placed::Held,
            false => Placed::Unknown,
        }
    }

    /// Returns whether a question that failed is put to the next call: many servers ask for the roots when a connection
    /// opens, so that the call in flight is not what they ask about, and may end before the client is asked.
    fn waits_for_next_call(&self, within: Option<&RequestId>, question: &RawInputRequest) -> bool {
        let has_ended = within.is_some_and(|id| !self.lock().calls.contains_key(id));
        question.kind == InputKind::Roots && self.owner.is_none() && has_ended
    }

    async fn hold(&self, question: RawInputRequest) -> Outcome {
        let (sender, client) = oneshot::channel();
        {
            let mut state = self.lock();
            state.held.retain(|held| !held.is_closed());
            if state.held.len() == MAX_HELD {
                return Err(refused("too many requests wait for the client"));
            }
            state.held.push(sender);
        }
        match tokio::time::timeout(HOLD_TIME, client).await {
            Ok(Ok(client)) => client.ask(question).await,
            _ => Err(refused(
                "the client made no call that could carry this request",
            )),
        }
    }

    fn lock(&self) -> MutexGuard<'_, QuestionsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who answers a question.
enum Placed {
    Client(Arc<dyn AskClient>),
    Unknown,
    /// It is about a request that cannot wait for input, or about a call that was abandoned.
    Nowhere,
    Held,
}

/// A call that the server may ask about, until it is dropped.
#[must_use = "a question about the call is refused once this is dropped"]
pub(crate) struct RegisteredCall {
    questions: Arc<Questions>,
    id: Option<RequestId>,
}

impl Drop for RegisteredCall {
    fn drop(&mut self) {
        let client = self
            .id
            .take()
            .and_then(|id| self.questions.lock().calls.remove(&id));
        drop(client); // not under the lock
    }
}

/// A task that the server may ask about, until it is dropped.
#[must_use = "a question about the task is refused once this is dropped"]
pub(crate) struct RegisteredTask {
    questions: Arc<Questions>,
    id: Arc<str>,
    client: Arc<dyn AskClient>,
}

impl Drop for RegisteredTask {
    fn drop(&mut self) {
        let mut state = self.questions.lock();
        let client = state.tasks.get(&self.id);
        // Another client of the same connection may have asked for the task later.
        let is_own = client.is_some_and(|client| Arc::ptr_eq(client, &self.client));
        let client = is_own.then(|| state.tasks.remove(&self.id));
        drop(state);
        drop(client); // not under the lock
    }
}

/// Answers the requests of an upstream, as its client.
pub(crate) struct UpstreamHost(pub(crate) Arc<Questions>);

impl Responder for UpstreamHost {
    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let params = Json::clone(&request.params);
            let Some(question) = RawInputRequest::from_request(&request.method, Some(params))
            else {
                return Err(RpcError::new(
                    ErrorCode::METHOD_NOT_FOUND,
                    format!("unknown method `{}`", request.method),
                ));
            };
            self.0.answer(cx.within().cloned(), question).await
        })
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

/// A client of the legacy era, which is asked with a request while the bridge answers a request of its own.
pub(crate) struct LegacyClient(pub(crate) Context);

impl AskClient for LegacyClient {
    fn ask(&self, question: RawInputRequest) -> BoxFuture<'_, Outcome> {
        Box::pin(ask_in(&self.0, question))
    }
}

/// Asks the client of a request.
pub(crate) async fn ask_in(cx: &Context, question: RawInputRequest) -> Outcome {
    let answer = cx.ask_raw("question", question).await;
    answer.map_err(|error| error.to_rpc_error())
}

fn refused(why: &str) -> RpcError {
    RpcError::new(ErrorCode::INTERNAL_ERROR, why)
}

/// How long a question is held for the next call.
const HOLD_TIME: Duration = Duration::from_secs(30);
/// How many questions of one connection are held.
const MAX_HELD: usize = 16;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A client that answers with its name.
    struct NamedClient(&'static str, AtomicBool);

    impl AskClient for NamedClient {
        fn ask(&self, _: RawInputRequest) -> BoxFuture<'_, Outcome> {
            Box::pin(async { Ok(Json::encode(self.0).unwrap()) })
        }

        fn is_ready(&self) -> bool {
            self.1.load(Ordering::Relaxed)
        }
    }

    fn client(name: &'static str) -> Arc<NamedClient> {
        Arc::new(NamedClient(name, AtomicBool::new(true)))
    }

    async fn asked(questions: &Questions, within: Option<i64>) -> String {
        let question = RawInputRequest::new(InputKind::Elicitation, None);
        let answer = questions.answer(within.map(RequestId::from), question);
        answer.await.unwrap().decode().unwrap()
    }

    #[tokio::test]
    async fn a_question_that_names_no_call_does_not_depend_on_one_of_several() {
        let owner = client("owner");
        let questions = Questions::new("upstream".into(), 4, Some(owner.clone()));
        let [_first, _second] = [(7, "first"), (8, "second")].map(|(id, name)| {
            let id = RequestId::from(id);
            let ((), registered) = questions.register(client(name), || (), |()| Some(id));
            registered
        });

        assert_eq!(asked(&questions, None).await, "owner");
        assert_eq!(asked(&questions, Some(7)).await, "first");

        owner.1.store(false, Ordering::Relaxed);
        assert_eq!(asked(&questions, None).await, "second");
    }
}
