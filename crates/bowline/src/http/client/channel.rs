//! `HttpChannel`, the [`Channel`] of the modern era over HTTP: one POST and its response per exchange.

use std::future::Future;
use std::sync::Arc;

use bowline_core::era::{Dialect, Request, Stamper, unseal};
use bowline_core::http::headers::{MirroredMessage, ParamHeaders, mirror, name_member};
use bowline_core::{CorrelationKey, Message, Outcome};
use bowline_types::{
    CallToolRequest, CallToolRequestParams, Cursor, ErrorCode, Json, ListToolsRequest, Method,
    PaginatedRequestParams, RequestId, RpcError, UnsupportedProtocolVersion,
};
use http::{Response, StatusCode};

use super::body::ResponseBody;
use super::mirrored_tools::MirroredTools;
use super::response::{ResponseContent, message, missing_response, read};
use super::send::SendState;
use super::{Endpoint, OutgoingRequest, RefusalPolicy, message_headers};
use crate::exchange::{
    Answer, CallOptions, Channel, Exchange, NO_EXTENSIONS, NotificationQueue, OverflowPolicy,
    RequestIds, TimeoutPause,
};
use crate::{Error, Result};

/// A [`Channel`] to a server of revision 2026-07-28 over HTTP.
///
/// # Cancel safety
///
/// Dropping an exchange aborts its POST, which cancels the request at the server. No cancel notification is sent.
#[derive(Clone)]
pub struct HttpChannel(Arc<ChannelState>);

/// The state that all exchanges of a channel share.
struct ChannelState {
    endpoint: Endpoint,
    stamper: Stamper,
    ids: RequestIds,
    /// The tools with arguments that are mirrored in headers (`x-mcp-header`).
    tools: MirroredTools,
}

impl HttpChannel {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self(Arc::new(ChannelState {
            endpoint,
            stamper: Stamper::default(),
            ids: RequestIds::default(),
            tools: MirroredTools::default(),
        }))
    }

    /// Returns the number of requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.0.ids.in_use()
    }

    /// Sends a request and returns the HTTP status and the outcome, if there is one; used to find out which protocol
    /// versions the server supports.
    pub(crate) async fn probe(
        &self,
        request: &Request,
        pause: &TimeoutPause,
    ) -> Result<(StatusCode, Option<Outcome>)> {
        let id = RequestId::Number(0);
        let response = self.post(&id, request, pause).await?;
        let status = response.status();
        let outcome = match read(&self.0.endpoint, response).await? {
            ResponseContent::Other(_) => None,
            ResponseContent::Json(_, body) => match message(&body) {
                Ok(Message::Response(response)) => Some(response.outcome),
                _ => None,
            },
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
        Ok((status, outcome))
    }

    #[allow(
        clippy::manual_async_fn,
        reason = "an `async fn` stores its arguments twice, which would enlarge the future of every call"
    )]
    fn exchange(
        self,
        id: RequestId,
        mut request: Request,
        handles: CallerHandles,
    ) -> impl Future<Output = Result<Answer>> + Send {
        async move {
            let mut outcome = self.round_trip(&id, &request, &handles).await?;
            if let Err(error) = &outcome
                // Boxed: it rarely runs, and inline it would enlarge the future of every exchange.
                && Box::pin(self.amend(&mut request, error, &handles)).await
            {
                outcome = self.round_trip(&id, &request, &handles).await?;
            }
            if request.method == ListToolsRequest::NAME {
                outcome = outcome.map(|result| self.0.tools.update(result));
            }
            let dialect = request.caller.dialect;
            let unsealed = unseal(&request.method, dialect, NO_EXTENSIONS, outcome);
            Answer::from_unsealed(unsealed)
        }
    }

    /// Changes a request that failed with `error` so that the server may accept it. Returns whether to send it again.
    async fn amend(
        &self,
        request: &mut Request,
        error: &RpcError,
        handles: &CallerHandles,
    ) -> bool {
        match error.code {
            ErrorCode::HEADER_MISMATCH if request.method == CallToolRequest::NAME => {
                // Our copy of the tool's schema, which determines the mirrored headers, may be stale.
                self.list_tools(request, handles).await;
                true
            }
            ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => {
                let data = error.data.as_ref();
                let data = data.and_then(|data| data.decode::<UnsupportedProtocolVersion>().ok());
                let versions = data.iter().flat_map(|data| &data.supported);
                let modern = versions
                    .filter_map(|version| Dialect::of(version.as_str()))
                    .filter(|dialect| dialect.is_modern());
                // Prefers another version (`false` is less than `true`); the refused one is retried only if the server
                // supports no other.
                let dialect =
                    modern.min_by_key(|dialect| std::ptr::eq(*dialect, request.caller.dialect));
                if let Some(dialect) = dialect {
                    Arc::make_mut(&mut request.caller).dialect = dialect;
                }
                dialect.is_some()
            }
            _ => false,
        }
    }

    /// Fetches all pages of `tools/list` to refresh the mirrored headers.
    async fn list_tools(&self, original: &Request, handles: &CallerHandles) {
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let page = self
                .fetch_tools_page(cursor.take(), original, handles)
                .await;
            cursor = page.and_then(|page| {
                let next = page.decode::<NextPage>().ok()?.next_cursor;
                self.0.tools.update(page);
                next
            });
            if cursor.is_none() {
                return;
            }
        }
        tracing::warn!("`tools/list` exceeds {MAX_PAGES} pages; ignored the rest");
    }

    async fn fetch_tools_page(
        &self,
        cursor: Option<Cursor>,
        original: &Request,
        handles: &CallerHandles,
    ) -> Option<Json> {
        let mut params = PaginatedRequestParams::default();
        params.cursor = cursor;
        let params = Json::encode(&params).ok()?;
        let list = Request::new(ListToolsRequest::NAME, params, original.caller.clone());
        let reservation = self.0.ids.reserve(None).ok()?;
        let unobserved = CallerHandles {
            notifications: Arc::new(NotificationQueue::closed()),
            pause: handles.pause.clone(),
        };
        let page = self.round_trip(reservation.id(), &list, &unobserved).await;
        page.ok()?.ok()
    }

    /// Sends one POST and reads its response up to the outcome.
    async fn round_trip(
        &self,
        id: &RequestId,
        request: &Request,
        handles: &CallerHandles,
    ) -> Result<Outcome> {
        let response = self.post(id, request, &handles.pause).await?;
        let reply = read(&self.0.endpoint, response).await?;
        match reply {
            ResponseContent::Other(status) => Err(missing_response(status)),
            ResponseContent::Json(status, body) => match message(&body) {
                Ok(Message::Response(response)) if is_response_to(response.id.as_ref(), id) => {
                    Ok(response.outcome)
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
                Err(_) if !status.is_success() => Err(missing_response(status)),
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
        pause: &TimeoutPause,
    ) -> Result<Response<ResponseBody>> {
        let stamped = self.0.stamper.stamp(request);
        let tool_headers = self.tool_headers(request);
        // A closure: the request may be sent more than once, for example after authorization.
        let headers = || {
            let mirrored = MirroredMessage {
                version: request.caller.dialect.version,
                method: &request.method,
                // The params before stamping, which changes only `_meta`: of that, headers mirror the version alone.
                params: Some(&request.params),
                name_member: name_member(&request.method),
            };
            let mut headers = message_headers();
            mirror(mirrored, tool_headers.as_deref(), &mut headers)
                .map_err(|unmirrorable| Error::misuse(unmirrorable.to_string()))?;
            Ok(headers)
        };
        let frame = Message::from(stamped.with_id(id.clone())).to_frame();
        let outgoing = OutgoingRequest {
            method: http::Method::POST,
            headers: &headers,
            frame,
            send_state: &SendState::new(),
            refusal_policy: RefusalPolicy::AuthorizePausing(pause),
        };
        self.0.endpoint.request(&outgoing).await
    }

    fn tool_headers(&self, request: &Request) -> Option<Arc<ParamHeaders>> {
        if request.method != CallToolRequest::NAME || self.0.tools.is_empty() {
            return None;
        }
        let params: CallToolRequestParams = request.params.decode().ok()?;
        self.0.tools.find(&params.name)
    }
}

impl Channel for HttpChannel {
    fn open(&self, request: Request, options: CallOptions) -> Exchange {
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
        let future = self
            .clone()
            .exchange(reservation.id().clone(), request, handles);
        Exchange::from_future(
            Box::pin(future),
            notifications,
            pause,
            reservation,
            overflow_policy,
            &options,
        )
    }
}

impl std::fmt::Debug for HttpChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpChannel")
            .field("uri", &self.0.endpoint.uri)
            .finish_non_exhaustive()
    }
}

/// What an exchange shares with its caller before the outcome: its notifications, and the pause of its timeouts.
#[derive(Clone, Default)]
struct CallerHandles {
    notifications: Arc<NotificationQueue>,
    /// Suspends the timeouts of the exchange.
    pause: Arc<TimeoutPause>,
}

/// The cursor of the next page in a list result.
#[derive(serde::Deserialize)]
struct NextPage {
    #[serde(rename = "nextCursor")]
    next_cursor: Option<Cursor>,
}

/// Maximum number of `tools/list` pages read for one call.
const MAX_PAGES: usize = 1000;

/// Returns whether a response with this id belongs to our request; an error may have no id.
fn is_response_to(id: Option<&RequestId>, ours: &RequestId) -> bool {
    id.is_none_or(|id| CorrelationKey::from(id) == CorrelationKey::from(ours))
}
