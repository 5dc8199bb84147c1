//! What the replicas of a bridge send each other. [`Cluster`](bowline::cluster::Cluster) seals it.
//!
//! Questions are JSON. A reply is one byte, and for events their bytes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline::exchange::{Caller, Context, Dialect, Principal, Request};
use bowline::types::{ClientCapabilities, Implementation, LoggingLevel, ProgressToken};
use bowline::{Json, RequestId, RpcError};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::client_token::{ClientToken, FrontToken};

/// Identifies a forwarded request. Random, chosen by the replica that forwards it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ExchangeId([u8; 16]);

impl ExchangeId {
    pub(super) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }
}

/// Why a request is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Verb {
    /// The replica owns the connections of the client to a server that keeps state. Sent once: it may run twice otherwise.
    Open,
    /// The replica has a parked call, which this request continues. It may be sent again: a state is used once.
    Attach,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ReplicaQuestion {
    /// Starts to answer a request.
    Start {
        exchange: ExchangeId,
        verb: Verb,
        upstream: String,
        request: Box<ForwardedRequest>,
    },
    /// Requests the events from byte `after`, and waits for some. Events before are no longer needed.
    Read {
        exchange: ExchangeId,
        after: u64,
        wait_millis: u64,
    },
    /// The client has cancelled the request.
    Cancel { exchange: ExchangeId },
}

/// A request of a client, as the upstream will get it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ForwardedRequest {
    id: RequestId,
    method: String,
    params: Json,
    progress_token: Option<ProgressToken>,
    version: String,
    client: Option<Implementation>,
    capabilities: ClientCapabilities,
    log_level: Option<LoggingLevel>,
    principal: Option<ForwardedPrincipal>,
    /// The access token, for upstreams that are called with it.
    token: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ForwardedPrincipal {
    name: String,
    subject: Option<String>,
    scopes: Vec<String>,
    claims: Option<Json>,
    expires_in_millis: Option<u64>,
}

impl ForwardedRequest {
    pub(super) fn new(request: &Request, cx: &Context) -> Self {
        let caller = &request.caller;
        let token = ClientToken::of(cx).map(|token| token.token().expose().to_owned());
        Self {
            id: cx.request_id().clone(),
            method: request.method.clone().into_owned(),
            params: Json::clone(&request.params),
            progress_token: request.progress_token.clone(),
            version: caller.dialect.version.to_owned(),
            client: caller.implementation.clone(),
            capabilities: caller.capabilities.clone(),
            log_level: caller.log_level,
            principal: ForwardedPrincipal::of(cx.principal()),
            token,
        }
    }

    /// Returns the request, its id and its principal; `None` for a version that this replica does not know.
    pub(super) fn into_parts(self) -> Option<ForwardedParts> {
        let mut caller = Caller::new(Dialect::of(&self.version)?);
        caller.implementation = self.client;
        caller.capabilities = self.capabilities;
        caller.log_level = self.log_level;
        let mut request = Request::new(self.method, self.params, Arc::new(caller));
        request.progress_token = self.progress_token;
        let principal = self.principal;
        Some(ForwardedParts {
            id: self.id,
            request,
            principal: principal.map_or_else(Principal::anonymous, ForwardedPrincipal::restore),
            token: self.token.map(FrontToken::new),
        })
    }
}

/// A forwarded request at its owner.
pub(super) struct ForwardedParts {
    pub(super) id: RequestId,
    pub(super) request: Request,
    pub(super) principal: Principal,
    pub(super) token: Option<FrontToken>,
}

impl ForwardedPrincipal {
    fn of(principal: &Principal) -> Option<Self> {
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        Some(Self {
            name: principal.name()?.to_owned(),
            subject: principal.subject().map(str::to_owned),
            scopes: principal.scopes().map(str::to_owned).collect(),
            claims: principal.claims().cloned(),
            expires_in_millis: principal.expires_at().map(|at| millis(left(at))),
        })
    }

    fn restore(self) -> Principal {
        let mut principal = Principal::named(self.name).with_scopes(self.scopes);
        if let Some(subject) = self.subject {
            principal = principal.with_subject(subject);
        }
        if let Some(claims) = self.claims {
            principal = principal.with_claims(claims);
        }
        let left = self.expires_in_millis.map(Duration::from_millis);
        match left.and_then(|left| Instant::now().checked_add(left)) {
            Some(at) => principal.with_expiry(at),
            None => principal,
        }
    }
}

/// A line of what a forwarded request has resulted in so far. The last one is the outcome.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum ReplicaEvent {
    Notification {
        method: String,
        params: Option<Json>,
    },
    Result(Json),
    Error(RpcError),
}

/// The answer to a [`ReplicaQuestion`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReplicaReply {
    Accepted,
    /// There is no such exchange.
    Gone,
    /// The replica does not own the connections of this client.
    NotOwner,
    /// Too many requests are forwarded to the replica.
    Busy,
    /// The question could not be decoded: the replicas have different versions, or different servers.
    NotUnderstood,
    /// Lines of [`ReplicaEvent`]s, cut anywhere; whether there are no more.
    Events {
        bytes: Bytes,
        is_end: bool,
    },
}

impl ReplicaReply {
    pub(super) fn encode(&self) -> Bytes {
        let (code, bytes) = match self {
            Self::Accepted => (b'a', &[][..]),
            Self::Gone => (b'g', &[][..]),
            Self::NotOwner => (b'n', &[][..]),
            Self::Busy => (b'b', &[][..]),
            Self::NotUnderstood => (b'u', &[][..]),
            Self::Events {
                bytes,
                is_end: false,
            } => (b'e', &bytes[..]),
            Self::Events {
                bytes,
                is_end: true,
            } => (b'E', &bytes[..]),
        };
        [&[code], bytes].concat().into()
    }

    pub(super) fn decode(mut reply: Bytes) -> Self {
        let Some(code) = reply.first().copied() else {
            return Self::NotUnderstood;
        };
        let bytes = reply.split_off(1);
        match code {
            b'a' => Self::Accepted,
            b'g' => Self::Gone,
            b'n' => Self::NotOwner,
            b'b' => Self::Busy,
            b'e' => Self::Events {
                bytes,
                is_end: false,
            },
            b'E' => Self::Events {
                bytes,
                is_end: true,
            },
            _ => Self::NotUnderstood,
        }
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_decoded_as_they_were_encoded() {
        let events = |is_end| ReplicaReply::Events {
            bytes: "{}\n".into(),
            is_end,
        };
        for reply in [
            ReplicaReply::Accepted,
            ReplicaReply::Gone,
            ReplicaReply::NotOwner,
            ReplicaReply::Busy,
            ReplicaReply::NotUnderstood,
            events(false),
            events(true),
        ] {
            assert_eq!(ReplicaReply::decode(reply.encode()), reply);
        }
        assert_eq!(
            ReplicaReply::decode(Bytes::new()),
            ReplicaReply::NotUnderstood
        );
    }

    #[test]
    fn a_forwarded_principal_is_the_same_at_its_owner() {
        let claims = Json::from(serde_json::json!({"client_id": "editor"}));
        let expiry = Instant::now() + Duration::from_secs(600);
        let ada = Principal::named("https://id.example ada")
            .with_subject("ada")
            .with_scopes(["read"])
            .with_claims(claims.clone())
            .with_expiry(expiry);

        let forwarded = ForwardedPrincipal::of(&ada).unwrap().restore();

        assert_eq!(forwarded, ada);
        assert_eq!(forwarded.subject(), Some("ada"));
        assert!(forwarded.has_scope("read"));
        assert_eq!(forwarded.claims(), Some(&claims));
        let difference = expiry.saturating_duration_since(forwarded.expires_at().unwrap());
        assert!(difference < Duration::from_secs(1), "{difference:?}");
        assert!(ForwardedPrincipal::of(&Principal::anonymous()).is_none());
    }
}
