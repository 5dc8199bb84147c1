//! The receiving side: acts on notices, and answers questions of other replicas.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use bowline_core::Message;
use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::SessionCluster;
use super::verbs::{SessionNotice, SessionQuestion, SessionReply, decode, encode};
use crate::backoff::Backoff;
use crate::cluster::{Asked, Cluster, GroupEvent, GroupId};
use crate::exchange::{BoxFuture, Principal};
use crate::http::legacy::http_sse::{DeliverError, accept_delivered};
use crate::http::legacy::session::Session;
use crate::http::legacy::sessions::Sessions;
use crate::http::legacy::streams::AttachError;
use crate::http::server::ServiceState;

/// Acts on the notices of other replicas, until the task is aborted.
pub(super) async fn listen(
    own: Weak<SessionCluster>,
    sessions: Weak<Sessions>,
    cluster: Cluster,
    group: GroupId,
    joined: watch::Sender<bool>,
) {
    let mut attempts = 0;
    let mut receiver = loop {
        match cluster.join(&group).await {
            Ok(receiver) => break receiver,
            Err(_) => {
                attempts += 1;
                tokio::time::sleep(BACKOFF.delay(attempts)).await;
            }
        }
    };
    joined.send_replace(true);
    let mut tasks = JoinSet::new();
    let mut missed = attempts > 0;
    loop {
        let event = match std::mem::take(&mut missed) {
            true => GroupEvent::Missed,
            false => match receiver.next().await {
                Some(event) => event,
                None => return,
            },
        };
        while tasks.try_join_next().is_some() {}
        if tasks.len() >= MAX_TASKS {
            tasks.join_next().await;
        }
        let (Some(own), Some(sessions)) = (own.upgrade(), sessions.upgrade()) else {
            return;
        };
        match event {
            GroupEvent::Message { from, .. } if from == cluster.replica() => {}
            GroupEvent::Message { body, .. } => match decode(&body) {
                Some(notice) => act(notice, own, sessions, &mut tasks),
                None => tracing::warn!("received an unknown notice of another replica"),
            },
            GroupEvent::Missed => {
                tracing::warn!("notices about sessions may have been lost; reading their records");
                tasks.spawn(async move {
                    for session in sessions.live() {
                        own.refresh(&sessions, &session).await;
                    }
                });
            }
        }
    }
}

fn act(
    notice: SessionNotice,
    own: Arc<SessionCluster>,
    sessions: Arc<Sessions>,
    tasks: &mut JoinSet<()>,
) {
    let (SessionNotice::Notification { session: key, .. }
    | SessionNotice::Changed { session: key }
    | SessionNotice::Ended { session: key }
    | SessionNotice::Attached { session: key }) = &notice;
    let Some(session) = sessions.find_by_key(key) else {
        return; // no live state here
    };
    match notice {
        SessionNotice::Notification { frame, .. } => {
            if let Ok(Message::Notification(notification)) = Message::decode(&frame.into()) {
                session.hear(notification);
            }
        }
        SessionNotice::Ended { .. } => sessions.end(&session.id()),
        SessionNotice::Changed { .. } => {
            tasks.spawn(async move { own.refresh(&sessions, &session).await });
        }
        SessionNotice::Attached { .. } => {
            tasks.spawn(async move { own.yield_stream(&session).await });
        }
    }
}

/// Returns the handler of questions.
pub(super) fn answer(
    sessions: Weak<Sessions>,
    state: Weak<ServiceState>,
) -> impl Fn(Asked) -> BoxFuture<'static, Bytes> + Send + Sync + 'static {
    move |asked| {
        let (sessions, state) = (sessions.clone(), state.clone());
        Box::pin(async move {
            let reply = match (decode(&asked.message), sessions.upgrade()) {
                (None, _) => SessionReply::NotUnderstood,
                (Some(_), None) => SessionReply::Gone,
                (Some(question), Some(sessions)) => reply(&sessions, &state, question).await,
            };
            encode(&reply)
        })
    }
}

async fn reply(
    sessions: &Sessions,
    state: &Weak<ServiceState>,
    question: SessionQuestion,
) -> SessionReply {
    let live = |key: &str, number: u64| {
        let found = sessions.find_by_key(key);
        found.filter(|session| session.live().is_some_and(|live| live.number == number))
    };
    match question {
        SessionQuestion::Answer {
            session,
            number,
            frame,
        } => match (live(&session, number), Message::decode(&frame.into())) {
            (Some(session), Ok(message @ Message::Response(_))) => {
                session.queue(vec![message]);
                SessionReply::Accepted
            }
            (Some(_), _) => SessionReply::NotUnderstood,
            (None, _) => SessionReply::Gone,
        },
        SessionQuestion::Read {
            session,
            number,
            stream,
            after,
            wait_millis,
        } => match live(&session, number) {
            Some(session) => {
                let wait = Duration::from_millis(wait_millis).min(MAX_WAIT);
                read(&session, stream, after, wait).await
            }
            None => SessionReply::Gone,
        },
        SessionQuestion::Deliver {
            id,
            principal,
            scopes,
            frame,
        } => match state.upgrade() {
            Some(state) => {
                let principal = principal.map_or_else(Principal::anonymous, |name| {
                    Principal::named(name).with_scopes(scopes)
                });
                match accept_delivered(&state, &id, principal, &frame.into()) {
                    Ok(()) => SessionReply::Accepted,
                    Err(DeliverError::Gone) => SessionReply::Gone,
                    Err(DeliverError::Refused(status, message)) => SessionReply::Refused {
                        status: status.as_u16(),
                        message,
                    },
                }
            }
            None => SessionReply::Gone,
        },
    }
}

/// Reads the events of a stream after a position: those that are there, or the next one.
async fn read(session: &Arc<Session>, stream: u64, after: u64, wait: Duration) -> SessionReply {
    let mut reader = match session.attach(stream, Some(after)) {
        Ok(reader) => reader,
        Err(AttachError::Ended) => {
            return SessionReply::Events {
                events: Vec::new(),
                is_end: true,
            };
        }
        Err(_) => return SessionReply::Lost,
    };
    let (mut events, mut bytes, mut is_end) = (Vec::new(), 0, false);
    let reading = poll_fn(|cx| {
        while bytes < TARGET_BYTES {
            match reader.poll_next(cx) {
                Poll::Ready(Some((position, frame))) => {
                    bytes += frame.len();
                    events.push((position, String::from_utf8_lossy(&frame).into_owned()));
                }
                Poll::Ready(None) => {
                    is_end = true;
                    return Poll::Ready(());
                }
                Poll::Pending if events.is_empty() => return Poll::Pending,
                Poll::Pending => return Poll::Ready(()),
            }
        }
        Poll::Ready(())
    });
    // Without an event in time, the reader asks again.
    let _ = tokio::time::timeout(wait, reading).await;
    drop(reader);
    SessionReply::Events { events, is_end }
}

const BACKOFF: Backoff = Backoff {
    min: Duration::from_millis(100),
    max: Duration::from_secs(5),
};
/// How many records are read at the same time.
const MAX_TASKS: usize = 16;
const MAX_WAIT: Duration = Duration::from_secs(20);
/// A reply has at least one event, and no more after this many bytes.
const TARGET_BYTES: usize = 128 * 1024;
