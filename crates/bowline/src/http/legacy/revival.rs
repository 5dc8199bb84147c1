//! Finding the session of a request: the live one, or a new live state made from the id.

use std::sync::Arc;

use bowline_core::era::{Caller, LegacyFeatures};
use bowline_core::http::admission::HttpRejection;
use bowline_core::{Message, Response};
use bowline_types::{InitializeRequestParams, InitializeResult};
use bytes::Bytes;

use super::replicas::unix_seconds;
use super::session::{Session, session_not_found};
use super::session_id::{HandshakeFacts, open_session_id, seal_session_id};
use super::sessions::{SessionOrigin, random_session_id, session_key};
use super::streams::StreamLayout;
use super::{Dialect, RawRequest};
use crate::exchange::Principal;
use crate::http::server::{ServiceState, unavailable};

/// Where the session of a request is.
pub(super) enum FoundSession {
    /// Here.
    Live(Arc<Session>),
    /// Not here, and its id opens.
    Retired(Box<RetiredSession>),
}

/// A session without live state here.
pub(super) struct RetiredSession {
    id: Arc<str>,
    principal: Principal,
    facts: HandshakeFacts,
}

/// Finds a session by its id. A forged id costs one decryption.
///
/// # Errors
///
/// Status 404 if the principal has no such session, or it has expired.
pub(super) fn find_session(
    state: &ServiceState,
    id: &str,
    principal: &Principal,
) -> Result<FoundSession, HttpRejection> {
    let legacy = &state.legacy;
    if let Ok(session) = legacy.sessions.find(id, principal) {
        return Ok(FoundSession::Live(session));
    }
    let facts = open_session_id(state.session_keys(), principal, id).map_err(|error| {
        tracing::debug!(%error, "failed to open a session id");
        session_not_found()
    })?;
    let is_own = facts.owner == legacy.sessions.owner(state)?.0;
    if facts.features.subscriptions && !is_own && state.cluster.is_none() {
        // Its subscriptions are not known here.
        return Err(session_not_found());
    }
    let served = state.served.of(facts.caller.dialect.version);
    if served.is_none_or(Dialect::is_modern) {
        return Err(session_not_found()); // a replica with other settings has opened it
    }
    Ok(FoundSession::Retired(Box::new(RetiredSession {
        id: id.into(),
        principal: principal.clone(),
        facts,
    })))
}

impl RetiredSession {
    /// Makes a live state: the same id, an own engine and streams, and the handshake done.
    ///
    /// # Errors
    ///
    /// If the session has ended, or the service shuts down.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the session is not revived, or is idle.
    pub(super) async fn revive(
        self,
        state: &Arc<ServiceState>,
    ) -> Result<Arc<Session>, HttpRejection> {
        let Self {
            id,
            principal,
            facts,
        } = self;
        let legacy = &state.legacy;
        let record = match legacy.sessions.cluster(state) {
            Some(cluster) => {
                cluster.ready().await;
                cluster.record(session_key(&id)).await
            }
            None => None,
        };
        if record.as_ref().is_some_and(|record| record.is_ended) {
            return Err(session_not_found());
        }
        let layout = StreamLayout::StreamableHttp;
        let origin = SessionOrigin::Revived(Box::new(facts));
        let running = legacy
            .sessions
            .start(state, legacy, layout, principal, origin)?;
        running.session.set_id(id);
        legacy.sessions.publish_revived(running, record)
    }
}

/// Returns the id of a session whose handshake has succeeded.
///
/// # Errors
///
/// If the operating system provides no randomness.
pub(super) fn new_session_id(
    state: &ServiceState,
    principal: &Principal,
    handshake: &Handshake,
) -> Result<Arc<str>, HttpRejection> {
    let legacy = &state.legacy;
    let facts = HandshakeFacts {
        owner: legacy.sessions.owner(state)?.0,
        created: unix_seconds(),
        features: handshake.features,
        caller: handshake.caller.clone(),
    };
    let settings = &legacy.replicas;
    let sealed = seal_session_id(state.session_keys(), principal, &facts, settings.lifetime);
    let sealed = sealed.map_err(|error| {
        tracing::error!(%error, "failed to seal a session id");
        unavailable("failed to open a session")
    })?;
    match sealed {
        Some(id) => Ok(id),
        None => {
            tracing::debug!("the capabilities of a client do not fit into a session id");
            random_session_id()
        }
    }
}

/// A completed handshake.
pub(super) struct Handshake {
    pub(super) caller: Caller,
    features: LegacyFeatures,
}

impl Handshake {
    /// Reads the version and the features from the answer to `initialize`, and the client from its params. Returns `None`
    /// if the answer is an error.
    pub(super) fn of(request: Option<&RawRequest>, answer: &Bytes) -> Option<Self> {
        let Ok(Message::Response(Response {
            outcome: Ok(result),
            ..
        })) = Message::decode(answer)
        else {
            return None;
        };
        let features = LegacyFeatures::of_handshake(&result);
        let result: InitializeResult = result.decode().ok()?;
        let mut caller = Caller::new(Dialect::of(result.protocol_version.as_str())?);
        let params = request.and_then(|raw| raw.params.as_ref());
        let params = params.and_then(|params| params.decode::<InitializeRequestParams>().ok())?;
        caller.implementation = Some(params.client_info);
        caller.capabilities = params.capabilities;
        Some(Self { caller, features })
    }
}
