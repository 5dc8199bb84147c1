//! [`Questions`]: which client a question of a legacy server is for.
//!
//! A *question* is a request of the server: for input of the user, for a completion of a model, or for the roots. A
//! legacy server asks on its connection, and does not say for which call:
//!
//! ```text
//! question ─┬─ it names a task ──────────────────────────────▶ the client of that task
//!           ├─ the transport knows the call ────────────────▶ the client of that call
//!           ├─ the connection belongs to a legacy client ───▶ that client, outside of its calls
//!           ├─ it may be about a call that was abandoned ───▶ refused
//!           ├─ one call is in flight ───────────────────────▶ the client of that call
//!           ├─ several, all of one client ──────────────────▶ that client, in its last call
//!           ├─ several, of clients without a name ──────────▶ held until one call is left, for a while
//!           ├─ a request that cannot wait for input is ─────▶ refused
//!           └─ nothing is in flight ────────────────────────▶ held for the next call, for a while
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline::exchange::{
    BoxFuture, InputKind, Notification, NotifiedContext, Outcome, Params, RawInputRequest, Request,
    Responder,
};
use bowline::telemetry::Telemetry;
use bowline::{Context, ErrorCode, Json, RequestId, RpcError};
use tokio::sync::oneshot;
use tokio::time::Instant;

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

/// Whose calls a connection carries.
#[derive(Default)]
pub(crate) struct ConnectionClients {
    /// The client to which the whole connection belongs: the one behind a legacy connection of the front.
    pub(crate) owner: Option<Arc<dyn AskClient>>,
    /// Whether all calls are of one client, or of one principal.
    pub(crate) is_one_client: bool,
    /// Whether the transport may tell the call that a question is about, as Streamable HTTP does. On other wires
    /// [`Context::within`] is the only call in flight, which may not be the one.
    pub(crate) tells_call: bool,
}

/// The questions of one connection to an upstream, and who can answer them.
pub(crate) struct Questions {
    upstream: Arc<str>,
    /// The limit that an error names, if calls share the connection because of it.
    max_connections: usize,
    clients: ConnectionClients,
    state: Mutex<QuestionsState>,
}

#[derive(Default)]
struct QuestionsState {
    calls: BTreeMap<RequestId, OpenCall>,
    /// The number of the next call.
    next_call: u64,
    /// By the ids of tasks.
    tasks: BTreeMap<Arc<str>, Arc<dyn AskClient>>,
    held: Vec<HeldQuestion>,
    /// When a call was last abandoned. The server may not have read the cancel, or ignore it, and ask about the call.
    last_abandoned: Option<Instant>,
}

struct OpenCall {
    /// Ids are numbers or texts of the transport, whose order says nothing.
    number: u64,
    client: Arc<dyn AskClient>,
}

/// A question that waits until it is certain whom to ask.
struct HeldQuestion {
    /// The calls that it may be about; `None` if it was asked while there was none, and waits for the next one.
    candidates: Option<BTreeSet<RequestId>>,
    /// Closed once the server does not wait any more. Dropped if the question is refused.
    client: oneshot::Sender<Arc<dyn AskClient>>,
}

impl Questions {
    pub(crate) fn new(
        upstream: Arc<str>,
        max_connections: usize,
        clients: ConnectionClients,
    ) -> Arc<Self> {
        Arc::new(Self {
            upstream,
            max_connections,
            clients,
            state: Mutex::default(),
        })
    }

    /// Returns whether the whole connection belongs to one client.
    pub(crate) fn has_owner(&self) -> bool {
        self.clients.owner.is_some()
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
            let number = state.next_call;
            state.next_call += 1;
            state.calls.insert(id.clone(), OpenCall { number, client });
        }
        let registered = RegisteredCall {
            questions: self.clone(),
            id,
            is_answered: false,
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

    /// Puts the questions that wait for the next call to `client`. Returns whether there are any.
    pub(crate) fn release_held(&self, client: impl FnOnce() -> Arc<dyn AskClient>) -> bool {
        let waits = |held: &mut HeldQuestion| held.candidates.is_none();
        let mut held: Vec<_> = self.lock().held.extract_if(.., waits).collect();
        held.retain(|held| !held.client.is_closed());
        if held.is_empty() {
            return false;
        }
        let client = client();
        let sent = held
            .into_iter()
            .map(|held| held.client.send(client.clone()).is_ok());
        sent.fold(false, |any, sent| any | sent)
    }

    async fn answer(&self, within: Option<RequestId>, question: RawInputRequest) -> Outcome {
        let task = question.params.as_ref().and_then(related_task);
        loop {
            match self.place(within.as_ref(), task.as_deref(), question.kind)? {
                Placed::Client(client) => {
                    let outcome = client.ask(question.clone()).await;
                    if outcome.is_err() && self.waits_for_next_call(within.as_ref(), &question) {
                        let held = self.lock().hold(None)?;
                        return wait_for_call(held, question).await;
                    }
                    return outcome;
                }
                Placed::OneOf(client, id) => {
                    let outcome = client.ask(question.clone()).await;
                    // If the call has ended, the question was about another one.
                    if outcome.is_ok() || self.lock().calls.contains_key(&id) {
                        return outcome;
                    }
                }
                Placed::NextCall(held) => return wait_for_call(held, question).await,
                Placed::LastCall(held) => return self.wait_until_certain(held, question).await,
            }
        }
    }

    fn place(
        &self,
        within: Option<&RequestId>,
        task: Option<&str>,
        kind: InputKind,
    ) -> Result<Placed, RpcError> {
        let mut state = self.lock();
        if let Some(client) = task.and_then(|id| state.tasks.get(id)) {
            return Ok(Placed::Client(client.clone()));
        }
        let last_call = || state.calls.iter().max_by_key(|(_, call)| call.number);
        if let Some(owner) = &self.clients.owner {
            let of_call = within.and_then(|id| state.calls.get(id));
            // Not in another one of its calls: the question may be about any of them, and would end with that one. If there
            // is no other way to the client yet, a call is better than a wait.
            let any = || last_call().filter(|_| !owner.is_ready());
            let call = of_call.or_else(|| any().map(|(_, call)| call));
            let client = call.map_or(owner, |call| &call.client);
            return Ok(Placed::Client(client.clone()));
        }
        // Roots are those of the client, whatever call they are about.
        let needs_call = kind != InputKind::Roots;
        let may_be_of_abandoned = needs_call && state.may_be_of_abandoned();
        // With several calls in flight the transport has told the call. If it is the only one, it may be a guess.
        let is_certain = self.clients.tells_call && state.calls.len() > 1;
        let is_told = is_certain || !may_be_of_abandoned;
        if let Some(within) = within.filter(|_| is_told) {
            match state.calls.get(within) {
                Some(call) => return Ok(Placed::Client(call.client.clone())),
                None if needs_call => return Err(refused("no call waits for this request")),
                None => {}
            }
        }
        if may_be_of_abandoned || (needs_call && within.is_some() && state.calls.is_empty()) {
            return Err(refused("no call waits for this request"));
        }
        match last_call() {
            None => Ok(Placed::NextCall(state.hold(None)?)),
            Some((_, call)) if state.calls.len() == 1 => Ok(Placed::Client(call.client.clone())),
            Some((id, call)) if self.clients.is_one_client => {
                Ok(Placed::OneOf(call.client.clone(), id.clone()))
            }
            Some(_) => {
                let candidates = state.calls.keys().cloned().collect();
                Ok(Placed::LastCall(state.hold(Some(candidates))?))
            }
        }
    }

    /// Returns whether a question that failed is put to the next call: many servers ask for the roots when a connection
    /// opens, so that the call in flight is not what they ask about, and may end before the client is asked.
    fn waits_for_next_call(&self, within: Option<&RequestId>, question: &RawInputRequest) -> bool {
        let has_ended = within.is_some_and(|id| !self.lock().calls.contains_key(id));
        question.kind == InputKind::Roots && self.clients.owner.is_none() && has_ended
    }

    /// Waits until the question can be about one call only.
    async fn wait_until_certain(
        &self,
        held: oneshot::Receiver<Arc<dyn AskClient>>,
        question: RawInputRequest,
    ) -> Outcome {
        if let Ok(Ok(client)) = tokio::time::timeout(HOLD_TIME, held).await {
            return client.ask(question).await;
        }
        tracing::warn!(
            upstream = %self.upstream,
            question = %question.kind,
            max_connections = self.max_connections,
            "refused a question: calls of several clients share the connection, and the server does not say which of \
             them it is about; raise the limit of connections, or require tokens"
        );
        Err(refused(
            "the bridge cannot tell which call this request is about",
        ))
    }

    fn lock(&self) -> MutexGuard<'_, QuestionsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts a question to the client of the next call.
async fn wait_for_call(
    held: oneshot::Receiver<Arc<dyn AskClient>>,
    question: RawInputRequest,
) -> Outcome {
    match tokio::time::timeout(HOLD_TIME, held).await {
        Ok(Ok(client)) => client.ask(question).await,
        _ => Err(refused(
            "the client made no call that could carry this request",
        )),
    }
}

impl QuestionsState {
    /// Adds a question that waits. Returns whom to ask, once it is certain.
    fn hold(
        &mut self,
        candidates: Option<BTreeSet<RequestId>>,
    ) -> Result<oneshot::Receiver<Arc<dyn AskClient>>, RpcError> {
        self.held.retain(|held| !held.client.is_closed());
        if self.held.len() == MAX_HELD {
            return Err(refused("too many requests wait for the client"));
        }
        let (sender, receiver) = oneshot::channel();
        self.held.push(HeldQuestion {
            candidates,
            client: sender,
        });
        Ok(receiver)
    }

    /// Returns whether a question that names no call may be about one that was abandoned: for a while in any case, and
    /// later if there is no other call.
    fn may_be_of_abandoned(&self) -> bool {
        let since = self.last_abandoned.map(|at| at.elapsed());
        since.is_some_and(|since| since < ABANDONED_TIME || self.calls.is_empty())
    }

    /// Removes a call. The questions that may be about it are refused if it was abandoned. Else they are about the other
    /// calls, and do not wait any more if only one is left.
    fn remove_call(&mut self, id: &RequestId, is_answered: bool) -> RemovedCall {
        let call = self.calls.remove(id);
        if call.is_some() && !is_answered {
            self.last_abandoned = Some(Instant::now());
        }
        let is_settled = |held: &mut HeldQuestion| match &mut held.candidates {
            Some(candidates) => candidates.remove(id) && (!is_answered || candidates.len() == 1),
            None => false,
        };
        let settled = self.held.extract_if(.., is_settled);
        let settled = settled.map(|held| {
            let last = held.candidates.iter().flatten().next();
            let call = last.and_then(|id| self.calls.get(id));
            let client = call.filter(|_| is_answered).map(|call| call.client.clone());
            (held, client)
        });
        RemovedCall {
            settled: settled.collect(),
            _call: call,
        }
    }
}

/// What a call leaves that has ended. It is dropped after the lock.
struct RemovedCall {
    /// The questions that do not wait any more, with the client to ask; `None` for those that are refused.
    settled: Vec<(HeldQuestion, Option<Arc<dyn AskClient>>)>,
    _call: Option<OpenCall>,
}

/// Who answers a question.
enum Placed {
    Client(Arc<dyn AskClient>),
    /// A client with several calls, in this one of them.
    OneOf(Arc<dyn AskClient>, RequestId),
    /// The client of the next call.
    NextCall(oneshot::Receiver<Arc<dyn AskClient>>),
    /// The client of the call that is the last one in flight.
    LastCall(oneshot::Receiver<Arc<dyn AskClient>>),
}

/// A call that the server may ask about, until it is dropped. It is abandoned then, unless it was answered: the server
/// may go on, and ask about it.
#[must_use = "a question about the call is refused once this is dropped"]
pub(crate) struct RegisteredCall {
    questions: Arc<Questions>,
    id: Option<RequestId>,
    is_answered: bool,
}

impl RegisteredCall {
    /// Records that the server does not work on the call any more.
    pub(crate) fn answered(&mut self) {
        self.is_answered = true;
    }
}

impl Drop for RegisteredCall {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else {
            return;
        };
        let removed = self.questions.lock().remove_call(&id, self.is_answered);
        for (held, client) in removed.settled {
            if let Some(client) = client {
                let _ = held.client.send(client); // fails if the server does not wait any more
            }
        }
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

/// How long a question is held until it is certain whom to ask.
const HOLD_TIME: Duration = Duration::from_secs(30);
/// How long a server may ask about a call that it was told to cancel.
const ABANDONED_TIME: Duration = Duration::from_secs(5);
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
        let clients = ConnectionClients {
            owner: Some(owner.clone()),
            ..ConnectionClients::default()
        };
        let questions = Questions::new("upstream".into(), 4, clients);
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
