//! [`SessionCluster`]: what the replicas of a server tell each other about sessions.
//!
//! ```text
//! notification of the client ──▶ told to all: the live state that it concerns acts on it
//! response to a server request ─▶ asked of its owner, which the id of the request names
//! setLevel, subscribe ──────────▶ the session record, a mark; all are told to read it
//! GET ──────────────────────────▶ a mark, the newest wins; the other streams end
//! DELETE ───────────────────────▶ the session record; all are told to end
//! ```
//!
//! All replicas are in one group, not in one for each session: these messages are rare, and a group has a cost in
//! every engine. While the engine is away, sessions are served without it, which is logged: a revoked session is
//! accepted, and a cancel or a subscription stays where it was received. Only an answer that cannot be delivered is an
//! error (503).

mod remote_stream;
pub(super) use remote_stream::resume_elsewhere;

mod service;

mod verbs;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::http::StatusCode;
use bowline_core::http::admission::HttpRejection;
use bowline_core::{Message, Response};
use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::live_id::{LiveId, OwnerId};
use super::session::{Session, session_not_found};
use super::session_record::{RecordChange, SessionRecord};
use super::session_state::DecodedPost;
use super::sessions::{Sessions, session_key};
use crate::cluster::{AskError, Cluster, GroupId, MarkError, ReplicaId, ServiceGuard, Unavailable};
use crate::exchange::Principal;
use crate::http::server::{ServiceState, unavailable};
use crate::seal::{Binding, Purpose};
use verbs::{SessionNotice, SessionQuestion, SessionReply, decode, encode};

/// The connection of a service's sessions to the other replicas.
pub(super) struct SessionCluster {
    cluster: Cluster,
    group: GroupId,
    /// The service that answers questions; replicas are servers with the same name.
    service: String,
    /// True once notices of other replicas are received.
    joined: watch::Receiver<bool>,
    /// Whether sessions are served although they are not.
    has_given_up: AtomicBool,
    listener: AbortHandle,
    _answering: ServiceGuard,
    record_lifetime: Duration,
}

impl Drop for SessionCluster {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl SessionCluster {
    /// Starts to receive messages of other replicas.
    pub(super) fn start(state: &Arc<ServiceState>, cluster: &Cluster) -> Arc<Self> {
        let name = server_name(state);
        let group = GroupId::new("sessions", &name);
        let service = format!("sessions {name}");
        let (joined, is_joined) = watch::channel(false);
        Arc::new_cyclic(|own| {
            let sessions = Arc::downgrade(&state.legacy.sessions);
            let listening = service::listen(
                own.clone(),
                sessions.clone(),
                cluster.clone(),
                group.clone(),
                joined,
            );
            let listener = tokio::spawn(listening).abort_handle();
            let answer = service::answer(sessions, Arc::downgrade(state));
            Self {
                _answering: cluster.serve(&service, answer),
                cluster: cluster.clone(),
                group,
                service,
                joined: is_joined,
                has_given_up: AtomicBool::new(false),
                listener,
                record_lifetime: state.legacy.replicas.lifetime,
            }
        })
    }

    /// Waits until notices of other replicas are received, before the first live state is made: later ones concern it.
    /// While the engine is away, only the first calls wait.
    pub(super) async fn ready(&self) {
        let mut joined = self.joined.clone();
        if *joined.borrow() || self.has_given_up.load(Ordering::Relaxed) {
            return;
        }
        let waiting = joined.wait_for(|joined| *joined);
        if timeout(LIMIT, waiting).await.is_err() {
            self.has_given_up.store(true, Ordering::Relaxed);
            tracing::warn!("serving sessions without messages of other replicas");
        }
    }

    /// Reads the record of a session; `None` if the engine has no record, or does not respond.
    pub(super) async fn record(&self, key: &str) -> Option<SessionRecord> {
        let mark = record_mark(key);
        let read = self.within(self.cluster.marks().read(&mark)).await;
        match read {
            Ok(value) => value.and_then(|value| self.open_record(key, &value)),
            Err(error) => {
                tracing::warn!(%error, "failed to read a session record; going on without it");
                None
            }
        }
    }

    /// Passes on what a POST contains for other live states, before its messages reach the engine here.
    ///
    /// # Errors
    ///
    /// If the response to a request of another live state cannot be delivered.
    pub(super) async fn before_post(
        &self,
        session: &Session,
        post: &mut DecodedPost,
    ) -> Result<(), HttpRejection> {
        let (id, mut changes) = (session.id(), Vec::new());
        let key = session_key(&id);
        for answer in post.take_foreign_answers(session) {
            self.send_answer(key, &answer).await?;
        }
        for notification in post.notifications() {
            if session.is_concerned_alone(notification) {
                continue;
            }
            let frame = Message::from(notification.clone()).to_frame();
            let frame = String::from_utf8_lossy(&frame).into_owned();
            let session = key.to_owned();
            self.tell(&SessionNotice::Notification { session, frame });
        }
        changes.extend(post.requests().filter_map(RecordChange::of));
        if !changes.is_empty() {
            self.change_record(key, &changes).await;
        }
        Ok(())
    }

    /// Sends the response to a request of another live state to its owner.
    async fn send_answer(&self, key: &str, answer: &Response) -> Result<(), HttpRejection> {
        let Some(live) = answer.id.as_ref().and_then(LiveId::of_request) else {
            return Ok(());
        };
        let frame = Message::from(answer.clone()).to_frame();
        let question = SessionQuestion::Answer {
            session: key.to_owned(),
            number: live.number,
            frame: String::from_utf8_lossy(&frame).into_owned(),
        };
        match self.ask(live.owner, &question, Duration::ZERO).await? {
            SessionReply::Accepted => Ok(()),
            SessionReply::Gone => Err(gone()),
            _ => Err(unavailable(NOT_UNDERSTOOD)),
        }
    }

    /// Delivers a POST to the message endpoint of an HTTP+SSE session to the replica that has its stream.
    ///
    /// # Errors
    ///
    /// If the session does not exist, or does not accept it, or its replica cannot be reached.
    pub(super) async fn deliver(
        &self,
        owner: OwnerId,
        id: String,
        principal: &Principal,
        frame: &Bytes,
    ) -> Result<(), HttpRejection> {
        let question = SessionQuestion::Deliver {
            id,
            principal: principal.name().map(str::to_owned),
            scopes: principal.scopes().map(str::to_owned).collect(),
            frame: String::from_utf8_lossy(frame).into_owned(),
        };
        match self.ask_once(owner, &question).await? {
            SessionReply::Accepted => Ok(()),
            SessionReply::Gone => Err(session_not_found()),
            SessionReply::Refused { status, message } => {
                let status = StatusCode::from_u16(status);
                let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                Err(HttpRejection::new(status, message))
            }
            _ => Err(unavailable(NOT_UNDERSTOOD)),
        }
    }

    /// Changes the record of a session, and tells other replicas to read it.
    async fn change_record(&self, key: &str, changes: &[RecordChange]) {
        match self.within(self.try_change_record(key, changes)).await {
            Ok(()) => self.tell(&SessionNotice::Changed {
                session: key.to_owned(),
            }),
            Err(error) => {
                tracing::warn!(%error, "failed to write a session record; the change stays here");
            }
        }
    }

    async fn try_change_record(
        &self,
        key: &str,
        changes: &[RecordChange],
    ) -> Result<(), MarkError> {
        let (marks, mark) = (self.cluster.marks(), record_mark(key));
        // Another replica may change it at the same time; the session's client sends few such requests.
        for _ in 0..MAX_ATTEMPTS {
            let current = marks.read(&mark).await?;
            let record = current
                .as_deref()
                .and_then(|value| self.open_record(key, value));
            let mut record = record.unwrap_or_default();
            if record.is_ended {
                return Ok(());
            }
            changes.iter().cloned().for_each(|change| {
                record.apply(change);
            });
            let sealed = self.seal_record(key, &record)?;
            let is_done = match &current {
                Some(value) => {
                    let replacing = marks.replace(&mark, value, &sealed, self.record_lifetime);
                    replacing.await?
                }
                None => {
                    let setting = marks.set_if_absent(&mark, &sealed, self.record_lifetime);
                    setting.await?.is_none()
                }
            };
            if is_done {
                return Ok(());
            }
        }
        Err(Unavailable::new("the session record", "it changes too often").into())
    }

    /// Ends a session on all replicas. While the engine is away, it ends here only.
    pub(super) async fn end(&self, key: &str) {
        let (marks, mark) = (self.cluster.marks(), record_mark(key));
        let ending = async {
            let sealed = self.seal_record(key, &SessionRecord::ended())?;
            marks.set(&mark, &sealed, self.record_lifetime).await
        };
        if let Err(error) = self.within(ending).await {
            tracing::warn!(%error, "failed to revoke a session; its id is accepted by other replicas");
        }
        self.tell(&SessionNotice::Ended {
            session: key.to_owned(),
        });
    }

    /// Records that the GET stream of a session is here, and ends it on other replicas.
    pub(super) async fn attached(&self, session: &Session) {
        let (id, Some(live)) = (session.id(), session.live()) else {
            return;
        };
        let key = session_key(&id);
        let (marks, mark) = (self.cluster.marks(), get_mark(key));
        let live = live.to_string();
        let setting = marks.set(&mark, live.as_bytes(), self.record_lifetime);
        if let Err(error) = self.within(setting).await {
            tracing::warn!(%error, "failed to record where a client listens");
        }
        self.tell(&SessionNotice::Attached {
            session: key.to_owned(),
        });
    }

    /// Ends the GET stream of a session here, if another replica has a newer one.
    async fn yield_stream(&self, session: &Session) {
        let id = session.id();
        let mark = get_mark(session_key(&id));
        let read = self.within(self.cluster.marks().read(&mark)).await;
        let own = session.live().map(|live| live.to_string());
        // Without the mark the sender of the notice is taken to be the newest.
        let is_own =
            matches!(&read, Ok(Some(live)) if own.as_deref().map(str::as_bytes) == Some(live));
        if !is_own {
            session.end_get_stream();
        }
    }

    /// Reads the record of a live session again, and applies what has changed.
    async fn refresh(&self, sessions: &Sessions, session: &Session) {
        let id = session.id();
        let Some(record) = self.record(session_key(&id)).await else {
            return;
        };
        if record.is_ended {
            sessions.end(&id);
        } else {
            session.apply_record(record);
        }
    }

    fn tell(&self, notice: &SessionNotice) {
        self.cluster.tell(&self.group, encode(notice));
    }

    /// Asks the owner of a live state; repeats the question once if there was no answer in time.
    async fn ask(
        &self,
        owner: OwnerId,
        question: &SessionQuestion,
        wait: Duration,
    ) -> Result<SessionReply, HttpRejection> {
        let message = encode(question);
        let reply = match self.try_ask(owner, message.clone(), wait).await {
            Err(AskError::TimedOut) => self.try_ask(owner, message, wait).await,
            reply => reply,
        };
        read_reply(reply)
    }

    /// Asks the owner of a session. Not repeated: the message could have an effect twice.
    async fn ask_once(
        &self,
        owner: OwnerId,
        question: &SessionQuestion,
    ) -> Result<SessionReply, HttpRejection> {
        read_reply(self.try_ask(owner, encode(question), Duration::ZERO).await)
    }

    async fn try_ask(
        &self,
        owner: OwnerId,
        message: Bytes,
        wait: Duration,
    ) -> Result<Bytes, AskError> {
        let (to, within) = (ReplicaId::from_bytes(owner.0), wait.saturating_add(LIMIT));
        self.cluster.ask(&self.service, to, message, within).await
    }

    fn seal_record(&self, key: &str, record: &SessionRecord) -> Result<Vec<u8>, MarkError> {
        let keys = self.cluster.keys();
        let sealed = keys.seal_bytes(
            Purpose::SessionId,
            record_binding(key),
            &encode(record),
            self.record_lifetime,
        );
        Ok(sealed.map_err(|error| Unavailable::new("the keys", error))?)
    }

    fn open_record(&self, key: &str, value: &[u8]) -> Option<SessionRecord> {
        let keys = self.cluster.keys();
        let opened = keys.open_bytes(Purpose::SessionId, record_binding(key), value);
        let record = opened.ok().and_then(|record| decode(&record));
        if record.is_none() {
            tracing::warn!("a session record cannot be read; going on without it");
        }
        record
    }

    /// Limits the time of an access to marks.
    async fn within<T>(
        &self,
        access: impl Future<Output = Result<T, MarkError>>,
    ) -> Result<T, MarkError> {
        let accessed = timeout(LIMIT, access).await;
        accessed.unwrap_or_else(|_| Err(Unavailable::timed_out("the marks", LIMIT).into()))
    }
}

fn read_reply(reply: Result<Bytes, AskError>) -> Result<SessionReply, HttpRejection> {
    match reply {
        Ok(reply) => Ok(decode(&reply).unwrap_or(SessionReply::NotUnderstood)),
        Err(AskError::ReplicaGone) => Ok(SessionReply::Gone),
        Err(error @ AskError::TooLarge { .. }) => Err(HttpRejection::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            error.to_string(),
        )),
        Err(error) => {
            tracing::warn!(%error, "failed to reach the replica that a message is for");
            Err(unavailable(
                "the replica that this concerns cannot be reached",
            ))
        }
    }
}

/// Returns the name of the server, shortened so that it fits into the name of a service.
fn server_name(state: &ServiceState) -> String {
    #[derive(serde::Deserialize, Default)]
    struct Named {
        name: String,
    }
    let named: Named = state.identity.decode().unwrap_or_default();
    named.name.chars().take(MAX_NAME_CHARS).collect()
}

fn record_mark(key: &str) -> Vec<u8> {
    format!("session record {key}").into_bytes()
}

fn get_mark(key: &str) -> Vec<u8> {
    format!("session GET {key}").into_bytes()
}

/// Differs from the binding of a session id, which has one part.
fn record_binding(key: &str) -> Binding {
    Binding::new().bytes(b"record").bytes(key)
}

fn gone() -> HttpRejection {
    super::bad_request(OWNER_GONE)
}

const OWNER_GONE: &str = "the replica that this concerns has ended, or freed the session";
const NOT_UNDERSTOOD: &str = "the replica that this concerns has another version";
/// How long a message or an access to marks may take.
const LIMIT: Duration = Duration::from_secs(5);
const MAX_ATTEMPTS: usize = 16;
const MAX_NAME_CHARS: usize = 50;
