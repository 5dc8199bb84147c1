//! `HttpChannel`, the channel of the modern era over HTTP: one POST and its response per exchange.

use std::future::Future;
use std::sync::Arc;

use bowline_core::era::{Dialect, Request, Stamper, unseal};
use bowline_core::http::headers::{MirroredMessage, ParamHeaders, mirror, name_member};
use bowline_core::{CorrelationKey, Message, Outcome};
use bowline_types::{ErrorCode, RequestId, RpcError, UnsupportedProtocolVersion};
use bytes::Bytes;
use http::{Response, StatusCode};

use super::body::ResponseBody;
use super::response::{ResponseContent, message, read};
use super::send::SendState;
use super::{Endpoint, OutgoingRequest, RefusalPolicy, message_headers};
use crate::exchange::{
    Answer, CallOptions, Exchange, NotificationQueue, OverflowPolicy, RequestIds, TimeoutPause,
};
use crate::{Error, Result};

/// The response to a probe.
pub(crate) struct ProbeResponse {
    pub(crate) status: StatusCode,
    pub(crate) outcome: Option<Outcome>,
    /// What the response means if it decides that there is no connection.
    pub(crate) error: Option<Error>,
}

/// A channel to a server of revision 2026-07-28 over HTTP.
///
/// # Cancel safety
///
/// Dropping an exchange aborts its POST, which cancels the request at the server. No cancel notification is sent.
#[derive(Clone)]
pub(crate) struct HttpChannel(Arc<ChannelState>);

/// The state that all exchanges of a channel share.
struct ChannelState {
    endpoint: Endpoint,
    stamper: Stamper,
    ids: RequestIds,
    /// Methods of extensions, with the member of their params that `Mcp-Name` mirrors.
    name_members: Vec<(String, String)>,
}

impl ChannelState {
    fn name_member(&self, method: &str) -> Option<&str> {
        name_member(method).or_else(|| {
            let mut members = self.name_members.iter();
            let (_, member) = members.find(|(known, _)| known == method)?;
            Some(member.as_str())
        })
    }
}

impl HttpChannel {
    /// `name_members` are methods of extensions, with the member of their params that `Mcp-Name` mirrors.
    pub(crate) fn new(endpoint: Endpoint, name_members: Vec<(String, String)>) -> Self {
        Self(Arc::new(ChannelState {
            endpoint,
            stamper: Stamper::default(),
            ids: RequestIds::default(),
            name_members,
        }))
    }

    /// Starts one exchange. `param_headers` are the arguments of the called tool that headers mirror.
    pub(crate) fn open(
        &self,
        request: Request,
        options: &CallOptions,
        param_headers: Option<Arc<ParamHeaders>>,
    ) -> Exchange {
        let reservation = match self.0.ids.reserve(options.id.clone()) {
            Ok(reservation) => reservation,
            Err(refused) => return Exchange::failed(Error::misuse(refused.to_string())),
        };
        let overflow_policy = OverflowPolicy::of(&request.method);
        let handles = CallerHandles::default();
        let CallerHandles {
            notifications,
            pause,
        } = handles.clone();
        let future =
            self.clone()
                .exchange(reservation.id().clone(), request, param_headers, handles);
        Exchange::from_future(
            Box::pin(future),
            notifications,
            pause,
            reservation,
            overflow_policy,
            options,
        )
    }

    /// Sends a request and returns the response, used to find out which protocol versions the server supports. `send_state`
    /// shows whether a connection has it.
    pub(crate) async fn probe(
        &self,
        request: &Request,
        pause: &TimeoutPause,
        send_state: &SendState,
    ) -> Result<ProbeResponse> {
        let id = RequestId::Number(0);
        let response = self.post(&id, request, None, pause, send_state).await?;
        let status = response.status();
        let mut error_body = Bytes::new();
        let outcome = match read(&self.0.endpoint, response).await? {
            ResponseContent::Other(_, body) => {
                error_body = body;
                None
            }
            ResponseContent::Json(_, body) => {
                let outcome = match message(&body) {
                    Ok(Message::Response(response)) => Some(response.outcome),
                    _ => None,
                };
                error_body = body;
                outcome
            }
            ResponseContent::Sse(mut events) => loop {
                let Some(data) = events.next_message().await? else {
                    break None;
                };
                if let Ok(Message::Response(response)) = message(&data) {
                    self.0.endpoint.drain.finish(events.into_body());
                    break Some(response.outcome);
                }
            },
        };
        Ok(ProbeResponse {
            outcome,
            error: (!status.is_success())
                .then(|| self.0.endpoint.missing_response(status, &error_body)),
            status,
        })
    }

    #[allow(
        clippy::manual_async_fn,
        reason = "an `async fn` stores its arguments twice, which would enlarge the future of every call"
    )]
    fn exchange(
        self,
        id: RequestId,
        mut request: Request,
        param_headers: Option<Arc<ParamHeaders>>,
        handles: CallerHandles,
    ) -> impl Future<Output = Result<Answer>> + Send {
        async move {
            let param_headers = param_headers.as_deref();
            let mut outcome = self
                .round_trip(&id, &request, param_headers, &handles)
                .await?;
            if let Err(error) = &outcome
                && let Some(dialect) = supported_dialect(error, request.caller.dialect)
            {
                Arc::make_mut(&mut request.caller).dialect = dialect;
                outcome = self
                    .round_trip(&id, &request, param_headers, &handles)
                    .await?;
            }
            let dialect = request.caller.dialect;
            let unsealed = unseal(&request.method, dialect, outcome);
            Answer::from_unsealed(unsealed)
        }
    }

    /// Sends one POST and reads its response up to the outcome.
    async fn round_trip(
        &self,
        id: &RequestId,
        request: &Request,
        param_headers: Option<&ParamHeaders>,
        handles: &CallerHandles,
    ) -> Result<Outcome> {
        let response = self
            .post(
                id,
                request,
                param_headers,
                &handles.pause,
                &SendState::new(),
            )
            .await?;
        let reply = read(&self.0.endpoint, response).await?;
        match reply {
            ResponseContent::Other(status, body) => {
                Err(self.0.endpoint.missing_response(status, &body))
            }
            ResponseContent::Json(status, body) => match message(&body) {
                Ok(Message::Response(response)) if is_response_to(response.id.as_ref(), id) => {
                    match self.0.endpoint.not_found(status, &body) {
                        Some(error) => Err(error),
                        None => Ok(response.outcome),
                    }
                }
                // Some servers put another id into errors that they report before they have read ours.
                Ok(Message::Response(response))
                    if !status.is_success() && response.outcome.is_err() =>
                {
                    Ok(response.outcome)
                }
                Ok(_) => Err(Error::protocol(
                    "expected the response to this request, got another message",
                )),
                // An error status is more useful to the caller than a parse error of its body.
                Err(_) if !status.is_success() => {
                    Err(self.0.endpoint.missing_response(status, &body))
                }
                Err(error) => Err(error),
            },
            ResponseContent::Sse(mut events) => loop {
                let Some(data) = events.next_message().await? else {
                    let what = "the response stream ended without a JSON-RPC response".into();
                    return Err(Error::Transport { what, source: None });
                };
                match message(&data)? {
                    Message::Response(response) if is_response_to(response.id.as_ref(), id) => {
                        self.0.endpoint.drain.finish(events.into_body());
                        return Ok(response.outcome);
                    }
                    Message::Notification(notification) => {
                        handles.notifications.push(notification);
                        // Stop reading while the queue is full: HTTP flow control then holds back the server.
                        handles.notifications.wait_for_capacity().await;
                    }
                    Message::Response(_) | Message::Request(_) => {
                        tracing::warn!("received an unexpected message on the response stream");
                    }
                }
            },
        }
    }

    async fn post(
        &self,
        id: &RequestId,
        request: &Request,
        param_headers: Option<&ParamHeaders>,
        pause: &TimeoutPause,
        send_state: &SendState,
    ) -> Result<Response<ResponseBody>> {
        let stamped = self.0.stamper.stamp(request);
        // A closure: the request may be sent more than once, for example after authorization.
        let headers = || {
            let mirrored = MirroredMessage {
                version: request.caller.dialect.version,
                method: &request.method,
                // The params before stamping, which changes only `_meta`: of that, headers mirror the version alone.
                params: Some(&request.params),
                name_member: self.0.name_member(&request.method),
            };
            let mut headers = message_headers();
            mirror(mirrored, param_headers, &mut headers)
                .map_err(|unmirrorable| Error::misuse(unmirrorable.to_string()))?;
            Ok(headers)
        };
        let frame = Message::from(stamped.with_id(id.clone())).to_frame();
        let outgoing = OutgoingRequest {
            method: http::Method::POST,
            headers: &headers,
            frame,
            send_state,
            refusal_policy: RefusalPolicy::AuthorizePausing(pause),
        };
        self.0.endpoint.request(&outgoing).await
    }
}

/// What an exchange shares with its caller before the outcome: its notifications, and the pause of its timeouts.
#[derive(Clone, Default)]
struct CallerHandles {
    notifications: Arc<NotificationQueue>,
    /// Suspends the timeouts of the exchange.
    pause: Arc<TimeoutPause>,
}

/// Returns the version to send a request again in, if `error` is that the server does not support its version.
fn supported_dialect(error: &RpcError, refused: &Dialect) -> Option<&'static Dialect> {
    if error.code != ErrorCode::UNSUPPORTED_PROTOCOL_VERSION {
        return None;
    }
    let data: UnsupportedProtocolVersion = error.data.as_ref()?.decode().ok()?;
    let versions = data.supported.iter();
    let modern = versions
        .filter_map(|version| Dialect::of(version.as_str()))
        .filter(|dialect| dialect.is_modern());
    // Prefers another version (`false` is less than `true`); the refused one is retried only if the server supports no
    // other.
    modern.min_by_key(|dialect| std::ptr::eq(*dialect, refused))
}

/// Returns whether a response with this id belongs to our request; an error may have no id.
fn is_response_to(id: Option<&RequestId>, ours: &RequestId) -> bool {
    id.is_none_or(|id| CorrelationKey::from(id) == CorrelationKey::from(ours))
}
