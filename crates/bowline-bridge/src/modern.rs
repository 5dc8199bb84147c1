//! Calls of modern clients, which are asked by an `input_required` result, and retry with the answers.
//!
//! ```text
//! a modern server asks    its result is passed on, with its state sealed for the client      `r.` + sealed text
//! a legacy server asks    the call is parked; the state names it                             sealed text
//!                         or it becomes a task, if the client declared tasks (`ParkedCallForm`)
//! ```

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline::exchange::{
    Answer, BoxFuture, Context, Outcome, Principal, RawInputRequest, Relay, Request,
};
use bowline::seal::Sealer;
use bowline::{Error, ErrorCode, Json, RpcError};
use bowline_core::json::Object;

use crate::config::ParkedCallForm;
use crate::forward::{
    self, FailedCall, MAX_SENDS, open_connection, options, outcome, relayed_answer, result_of,
    upstream_request,
};
use crate::listen;
use crate::parked::{
    self, Call, HostSide, KeptNotifications, ParkSettings, ParkedCalls, Resumed, Retry,
};
use crate::questions::{AskClient, RegisteredCall};
use crate::relayed_state::RelayedStates;
use crate::replicas::Replicas;
use crate::state_keys::StateKeys;
use crate::tasks::{self, TaskAccess, TaskScope, parked_tasks};
use crate::upstream::{ConnectionLease, LogLevelUse, Upstream};

/// The calls of modern clients that servers may ask about.
pub(crate) struct ModernCalls {
    parked: ParkedCalls<ParkedWork>,
    states: RelayedStates,
    parked_calls: ParkedCallForm,
    keys: StateKeys,
    /// The other replicas, if there are some.
    replicas: OnceLock<Replicas>,
}

impl ModernCalls {
    pub(crate) fn new(sealer: Sealer, settings: ParkSettings) -> Self {
        let keys = StateKeys::new(sealer);
        Self {
            parked: ParkedCalls::new(keys.clone(), settings),
            states: RelayedStates::new(keys.clone()),
            parked_calls: settings.form,
            keys,
            replicas: OnceLock::new(),
        }
    }

    /// Joins a cluster, whose keys are used from now on. The first one stays.
    pub(crate) fn join(&self, replicas: Replicas) {
        let cluster = replicas.cluster();
        self.keys.set_of_cluster(cluster.keys().clone());
        self.parked.set_owner(cluster.replica());
        let _ = self.replicas.set(replicas);
    }

    pub(crate) fn replicas(&self) -> Option<&Replicas> {
        self.replicas.get()
    }

    /// Returns how clients get parked calls back.
    pub(crate) fn parked_calls(&self) -> ParkedCallForm {
        self.parked_calls
    }

    /// Returns how many calls to legacy servers, and requests of other replicas, have not ended.
    pub(crate) fn open_calls(&self) -> usize {
        let forwarded = self.replicas().map_or(0, Replicas::running);
        self.parked.open_calls() + forwarded
    }

    /// Forwards a request of a client of either era, at the replica that is connected to the server for this client.
    pub(crate) async fn respond(
        &self,
        upstream: &Arc<Upstream>,
        request: Request,
        cx: &Context,
    ) -> Outcome {
        match self.replicas().filter(|_| upstream.has_owner(cx)) {
            Some(replicas) => {
                Box::pin(replicas.respond_at_owner(self, upstream, request, cx)).await
            }
            None => self.respond_here(upstream, request, cx).await,
        }
    }

    /// Forwards a request of a client of either era, as far as its principal may know the tasks that it is about.
    pub(crate) async fn respond_here(
        &self,
        upstream: &Arc<Upstream>,
        mut request: Request,
        cx: &Context,
    ) -> Outcome {
        if let Some(outcome) = self.parked_task(upstream, &request, cx) {
            return outcome;
        }
        let cluster = self.replicas().map(Replicas::cluster);
        let Some(access) = TaskAccess::of(upstream, cx, cluster) else {
            return self.translate(upstream, request, cx).await;
        };
        // Boxed, so that the future of an anonymous client stays small.
        let responding = async {
            access.check(&request).await?;
            if request.method == LISTEN {
                access.check_filter(&request)?;
                access.restrict(&mut request).await;
            }
            let method = request.method.clone();
            let outcome = self.translate(upstream, request, cx).await;
            access.apply(&method, outcome).await
        };
        Box::pin(responding).await
    }

    /// Forwards a request of a client of either era, with what concerns its tasks translated.
    async fn translate(&self, upstream: &Arc<Upstream>, request: Request, cx: &Context) -> Outcome {
        if request.method == LISTEN {
            return Box::pin(listen::listen(upstream, request, cx)).await;
        }
        let request = match tasks::respond(upstream, request, cx).await {
            ControlFlow::Continue(request) => request,
            ControlFlow::Break(outcome) => return outcome,
        };
        let dialect = request.caller.dialect;
        match dialect.is_modern() && dialect.may_need_input(&request.method) {
            true => Box::pin(self.call(upstream, request, cx)).await,
            false => Box::pin(forward::forward(upstream, request, cx)).await,
        }
    }

    /// Answers a request about a task that the bridge has made of a parked call.
    fn parked_task(&self, upstream: &Upstream, request: &Request, cx: &Context) -> Option<Outcome> {
        let id = parked_tasks::requested_id(request)?;
        let found = self.parked.find_task(&id, cx.principal(), upstream.name());
        match found {
            Ok(task) => Some(parked_tasks::answer(request, &task?)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Forwards a call of a modern client, or continues one that waited for input.
    async fn call(&self, upstream: &Arc<Upstream>, mut request: Request, cx: &Context) -> Outcome {
        let mut max_sends = MAX_SENDS;
        if let Some(retry) = Retry::read(&request, cx.principal(), upstream.name())? {
            if !RelayedStates::is_relayed(retry.state()) {
                if let Some(outcome) = self.attach(upstream, &request, &retry, cx).await {
                    return outcome;
                }
                // The answers are sent with this request's token, not with that of the call.
                upstream.refresh_token(cx);
                // Boxed, as `send` below: calls to modern servers do not pass here.
                let resumed = async {
                    let resumed = self.parked.resume(&retry).await?;
                    self.resume(resumed, cx).await
                };
                return Box::pin(resumed).await;
            }
            let params =
                self.states
                    .open(upstream.name(), &request, cx.principal(), retry.state())?;
            request.params = params.into();
            // The state is of the modern server that has asked.
            max_sends = 1;
        }
        let mut outcome = self.call_once(upstream, &request, cx).await;
        for _ in 1..max_sends {
            match outcome {
                Err(failed) if failed.must_send_again => {
                    outcome = Box::pin(self.call_once(upstream, &request, cx)).await;
                }
                _ => break,
            }
        }
        Ok(outcome?)
    }

    async fn call_once(
        &self,
        upstream: &Arc<Upstream>,
        request: &Request,
        cx: &Context,
    ) -> Result<Json, FailedCall> {
        let lease = upstream.lease(request, cx).await?;
        if open_connection(&lease)?.dialect().is_modern() {
            self.relay(upstream, &lease, request, cx).await
        } else {
            Ok(Box::pin(self.send(upstream, lease, request.clone(), cx)).await?)
        }
    }

    /// Continues a call that another replica has parked.
    async fn attach(
        &self,
        upstream: &Arc<Upstream>,
        request: &Request,
        retry: &Retry<'_>,
        cx: &Context,
    ) -> Option<Outcome> {
        let replicas = self.replicas()?;
        let owner = self.parked.other_owner(retry)?;
        Box::pin(replicas.attach(owner, upstream, request, cx)).await
    }

    /// Forwards a call to a modern server.
    async fn relay(
        &self,
        upstream: &Upstream,
        lease: &ConnectionLease,
        request: &Request,
        cx: &Context,
    ) -> Result<Json, FailedCall> {
        let connection = open_connection(lease)?;
        let sent = upstream_request(connection, request.clone());
        let mut relay = Relay::open(connection.channel(), sent, options(upstream));
        match relayed_answer(upstream, lease, &mut relay, cx).await? {
            Answer::InputRequired(result) => {
                let (name, principal) = (upstream.name(), cx.principal());
                Ok(self.states.seal(name, request, principal, result)?)
            }
            answer => Ok(result_of(answer)),
        }
    }

    /// Sends a call to a legacy server, after the client has answered what the server asked before.
    async fn send(
        &self,
        upstream: &Arc<Upstream>,
        lease: ConnectionLease,
        request: Request,
        cx: &Context,
    ) -> Outcome {
        let call = self.parked.open_call(&request, cx.principal());
        if upstream.has_asked() {
            call.reserve()?;
        }
        let mut unsent = UnsentCall {
            upstream: upstream.clone(),
            lease,
            tasks: TaskScope::of(upstream, cx),
            request,
            principal: cx.principal().clone(),
            states: self.states.clone(),
        };
        let questions = open_connection(&unsent.lease)?.questions();
        let has_held = questions.release_held(|| Arc::new(ParkedClient::new(&call, upstream)));
        if has_held {
            // The server may withdraw the question at this moment.
            let ready = tokio::time::timeout(HELD_QUESTION_TIME, call.question_asked()).await;
            if ready.is_ok() {
                unshare(&mut unsent.request);
                return call.park(ParkedWork::Unsent(unsent));
            }
        }
        let sent = unsent.send(&call).await?;
        self.wait(call, sent, cx).await
    }

    /// Waits for the answer, or parks the call when the server asks.
    async fn wait(&self, call: Call<ParkedWork>, mut sent: SentCall, cx: &Context) -> Outcome {
        let asked = async {
            call.questions_ready().await;
            // A server that asks several questions at once sends one after the other.
            tokio::time::sleep(MORE_QUESTIONS_TIME).await;
            // It may have withdrawn the first one meanwhile.
            call.questions_ready().await;
        };
        let outcome = tokio::select! {
            biased;
            outcome = sent.outcome(cx) => outcome,
            () = asked => return self.park(call, sent),
        };
        call.finish();
        tasks::explain_refusal(&sent.lease, &sent.request, outcome).await
    }

    /// Parks a call that the server asks about.
    fn park(&self, call: Call<ParkedWork>, mut sent: SentCall) -> Outcome {
        unshare(&mut sent.request);
        let is_task = self.parked_calls == ParkedCallForm::Task;
        if !is_task || !parked_tasks::can_be_task(&sent.request) {
            return call.park(ParkedWork::Sent(sent));
        }
        let created = call.into_task(ParkedWork::Sent(sent))?;
        Ok(parked_tasks::created(&created))
    }

    async fn resume(&self, resumed: Resumed<ParkedWork>, cx: &Context) -> Outcome {
        match resumed {
            Resumed::Answered {
                outcome,
                notifications,
            } => {
                notifications
                    .into_iter()
                    .for_each(|notification| cx.send(notification));
                outcome
            }
            Resumed::Running {
                call,
                upstream,
                notifications,
            } => {
                notifications
                    .into_iter()
                    .for_each(|notification| cx.send(notification));
                let sent = match upstream {
                    ParkedWork::Sent(sent) => sent,
                    ParkedWork::Unsent(unsent) => {
                        unsent.answers_sent().await;
                        unsent.send(&call).await?
                    }
                };
                self.wait(call, sent, cx).await
            }
        }
    }
}

/// A call that is parked.
enum ParkedWork {
    Sent(SentCall),
    /// The server asked before it was sent.
    Unsent(UnsentCall),
}

/// A call that was sent to a legacy server, with what must live as long as it.
struct SentCall {
    /// First, so that it is dropped first: the call must count as abandoned before the connection forgets it. A question
    /// about it would else be taken for one about another call.
    registered: RegisteredCall,
    relay: Relay,
    /// Its answer, while the version of the server is checked.
    answer: Option<Result<Answer, Error>>,
    _log_level: Option<LogLevelUse>,
    upstream: Arc<Upstream>,
    lease: Arc<ConnectionLease>,
    tasks: TaskScope,
    /// The request of the client.
    request: Request,
    principal: Principal,
    states: RelayedStates,
}

impl SentCall {
    /// Waits for the answer.
    ///
    /// # Cancel safety
    ///
    /// Safe: as [`Relay::answer`].
    async fn outcome(&mut self, cx: &Context) -> Outcome {
        if self.answer.is_none() {
            let answer = self.relay.answer(cx).await;
            if matches!(answer, Ok(_) | Err(Error::Rpc(_))) {
                self.registered.answered();
            }
            self.answer = Some(answer);
        }
        if let Some(Err(error)) = &self.answer {
            // The answer is kept meanwhile, because this future may be dropped. Boxed: most calls succeed.
            Box::pin(self.upstream.has_changed_era(&self.lease, error)).await;
        }
        match self.answer.take().unwrap_or(Err(Error::Closed)) {
            // A legacy server that wants the user to open a URL first, and the call to be made again.
            Ok(Answer::InputRequired(result)) => {
                let upstream = self.upstream.name();
                self.states
                    .seal(upstream, &self.request, &self.principal, result)
            }
            answer => {
                let attempt = self.lease.attempt();
                let outcome = outcome(&self.upstream, attempt, answer).map_err(to_modern_error);
                tasks::convert_answer(&self.tasks, &self.lease, &self.request, outcome)
            }
        }
    }
}

struct UnsentCall {
    upstream: Arc<Upstream>,
    lease: ConnectionLease,
    tasks: TaskScope,
    request: Request,
    principal: Principal,
    states: RelayedStates,
}

impl UnsentCall {
    /// Waits until the answers to what the server asked before are on their way, for they decide how it handles the
    /// call. There may be other questions, about other calls, so it does not wait for long.
    async fn answers_sent(&self) {
        let Some(connection) = self.lease.get() else {
            return;
        };
        let mut ticks = tokio::time::interval(Duration::from_millis(1));
        let sent = async {
            while connection.channel().unanswered_requests() > 0 {
                ticks.tick().await;
            }
        };
        // An error means that it waited long enough.
        let _ = tokio::time::timeout(ANSWERS_SENT_TIME, sent).await;
    }

    async fn send(self, call: &Call<ParkedWork>) -> Result<SentCall, RpcError> {
        let Self {
            upstream,
            lease,
            tasks,
            request,
            principal,
            states,
        } = self;
        let (relay, registered, log_level) = {
            let connection = open_connection(&lease)?;
            let log_level = connection.set_log_level(&request.caller).await;
            let sent = upstream_request(connection, request.clone());
            let client = Arc::new(ParkedClient::new(call, &upstream));
            let open = || Relay::open(connection.channel(), sent, options(&upstream));
            let id = |relay: &Relay| relay.request_id().cloned();
            let (relay, registered) = connection.questions().register(client, open, id);
            (relay, registered, log_level)
        };
        Ok(SentCall {
            registered,
            relay,
            answer: None,
            _log_level: log_level,
            upstream,
            lease: Arc::new(lease),
            tasks,
            request,
            principal,
            states,
        })
    }
}

impl parked::Upstream for ParkedWork {
    async fn outcome(&mut self, kept: &Arc<KeptNotifications>) -> Outcome {
        match self {
            Self::Sent(sent) => {
                let id = sent
                    .relay
                    .request_id()
                    .cloned()
                    .unwrap_or_else(|| "parked".into());
                let cx = Context::new(id, &sent.request, kept.clone());
                sent.outcome(&cx).await
            }
            Self::Unsent(_) => std::future::pending().await,
        }
    }

    fn may_have_run(&self) -> bool {
        matches!(self, Self::Sent(_))
    }

    fn server(&self) -> &str {
        match self {
            Self::Sent(sent) => sent.upstream.name(),
            Self::Unsent(unsent) => unsent.upstream.name(),
        }
    }

    fn cancel(self, reason: &str) {
        if let Self::Sent(sent) = self {
            sent.relay.cancel(reason);
        }
    }
}

/// The client of a call that can be parked.
struct ParkedClient {
    host_side: HostSide<ParkedWork>,
    upstream: Arc<Upstream>,
}

impl ParkedClient {
    fn new(call: &Call<ParkedWork>, upstream: &Arc<Upstream>) -> Self {
        Self {
            host_side: call.host_side(),
            upstream: upstream.clone(),
        }
    }
}

impl AskClient for ParkedClient {
    fn ask(&self, question: RawInputRequest) -> BoxFuture<'_, Outcome> {
        self.upstream.set_has_asked();
        Box::pin(self.host_side.question(question))
    }
}

/// Copies the params of a call that is about to be parked: a part of a frame would keep the whole frame in memory, and the
/// call is charged for its params.
fn unshare(request: &mut Request) {
    request.params = request.params.to_unshared().into();
}

/// Returns the modern form of an error with which a legacy server names the capabilities that the client lacks. Legacy
/// versions have no code for it, so Bowline's servers send that of invalid params with the same data.
fn to_modern_error(mut error: RpcError) -> RpcError {
    let data = error.data.as_ref().map(Object::read);
    let names_capabilities =
        matches!(data, Some(Ok(data)) if data.member("requiredCapabilities").is_some());
    if error.code == ErrorCode::INVALID_PARAMS && names_capabilities {
        error.code = ErrorCode::MISSING_CLIENT_CAPABILITY;
    }
    error
}

const LISTEN: &str = "subscriptions/listen";
/// How long a call waits for further questions before it is parked.
const MORE_QUESTIONS_TIME: Duration = Duration::from_millis(5);
/// How long a call waits until the answers before it are on their way.
const ANSWERS_SENT_TIME: Duration = Duration::from_millis(200);
/// How long a question that is about to be put may take to arrive.
const HELD_QUESTION_TIME: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_that_names_required_capabilities_gets_the_modern_code() {
        let error = |data| {
            let error = RpcError::invalid_params("no").with_data(Json::from(data));
            to_modern_error(error).code
        };

        let missing = json!({"requiredCapabilities": {"sampling": {}}});
        assert_eq!(error(missing), ErrorCode::MISSING_CLIENT_CAPABILITY);
        assert_eq!(error(json!({"other": 1})), ErrorCode::INVALID_PARAMS);
        assert_eq!(error(json!(1)), ErrorCode::INVALID_PARAMS);
    }
}
