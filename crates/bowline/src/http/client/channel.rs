//! The modern channel: one POST per request, and its response is the exchange.

use std::future::Future;
use std::sync::Arc;

use bowline_core::era::{Dialect, Request, Stamper, unseal};
use bowline_core::http::headers::{Mirrored, ParamHeaders, mirror, name_member};
use bowline_core::mux::CallOptions;
use bowline_core::{CorrelationKey, Message, Outcome};
use bowline_types::{
    CallToolRequest, CallToolRequestParams, Cursor, ErrorCode, Json, ListToolsRequest, Method,
    PaginatedRequestParams, RequestId, RpcError, UnsupportedProtocolVersion,
};
use http::{Response, StatusCode};

use super::body::ResponseBody;
use super::mirrored_tools::MirroredTools;
use super::response::{Reply, message, no_answer, read};
use super::send::Handed;
use super::{Endpoint, Outgoing, WhenRefused, message_headers};
use crate::exchange::{Answer, Channel, Driven, Exchange, Ids, Pause, Said};
use crate::{Error, Result};

/// Reaches a server of revision 2026-07-28 over HTTP.
///
/// # Cancel safety
///
/// Dropping an exchange abandons its POST, which is what tells the server. Nothing further is sent.
#[derive(Clone)]
pub struct HttpChannel(Arc<Shared>);

/// What all exchanges have in common.
struct Shared {
    endpoint: Endpoint,
    stamper: Stamper,
    ids: Ids,
    /// Which arguments of which tools are mirrored in headers.
    tools: MirroredTools,
}

impl HttpChannel {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self(Arc::new(Shared {
            endpoint,
            stamper: Stamper::default(),
            ids: Ids::default(),
            tools: MirroredTools::default(),
        }))
    }

    /// How many requests are in progress.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.0.ids.in_use()
    }

    /// Sends a request and returns its status and its answer, if it has one; for finding out what the
    /// server speaks.
    pub(crate) async fn probe(
        &self,
        request: &Request,
        pause: &Pause,
    ) -> Result<(StatusCode, Option<Outcome>)> {
        let id = RequestId::Number(0);
        let response = self.post(&id, request, pause).await?;
        let status = response.status();
        let outcome = match read(&self.0.endpoint, response).await? {
            Reply::Bare(_) => None,
            Reply::Json(_, body) => match message(&body) {
                Ok(Message::Response(response)) => Some(response.outcome),
                _ => None,
            },
            Reply::Events(mut events) => loop {
                let Some(data) = events.next_message().await? else {
                    break None;
                };
                if let Ok(Message::Response(response)) = message(&data) {
                    self.0.endpoint.drain.finish(events);
                    break Some(response.outcome);
                }
            },
        };
        Ok((status, outcome))
    }

    #[allow(
        clippy::manual_async_fn,
        reason = "an `async fn` keeps its arguments twice, and this is part of every call"
    )]
    fn exchange(
        self,
        id: RequestId,
        mut request: Request,
        heard: Heard,
    ) -> impl Future<Output = Result<Answer>> + Send {
        async move {
            let mut outcome = self.round_trip(&id, &request, &heard).await?;
            if let Err(error) = &outcome
                // In a box, for it is rare, and the room it takes would be part of every exchange.
                && Box::pin(self.amend(&mut request, error, &heard)).await
            {
                outcome = self.round_trip(&id, &request, &heard).await?;
            }
            if request.method == ListToolsRequest::NAME {
                outcome = outcome.map(|result| self.0.tools.learn(result));
            }
            let unsealed = unseal(&request.method, request.caller.dialect, &[], outcome);
            Answer::from_unsealed(unsealed)
        }
    }

    /// Changes a request so that the server may take it after all, if its no can be helped. Whether that is worth
    /// a try.
    async fn amend(&self, request: &mut Request, error: &RpcError, heard: &Heard) -> bool {
        match error.code {
            ErrorCode::HEADER_MISMATCH if request.method == CallToolRequest::NAME => {
                // The tool's schema says which arguments are mirrored in headers; ours may be old.
                self.list_tools(request, heard).await;
                true
            }
            ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => {
                let data = error.data.as_ref();
                let data = data.and_then(|data| data.decode::<UnsupportedProtocolVersion>().ok());
                let versions = data.iter().flat_map(|data| &data.supported);
                let modern = versions
                    .filter_map(|version| Dialect::of(version.as_str()))
                    .filter(|dialect| dialect.is_modern());
                // One that was refused although the server names it is tried once more, after all others.
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

    /// Asks for all tools, page by page, for the sake of their schemas.
    async fn list_tools(&self, asking: &Request, heard: &Heard) {
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let page = self.page_of_tools(cursor.take(), asking, heard).await;
            cursor = page.and_then(|page| {
                let next = page.decode::<NextPage>().ok()?.next_cursor;
                self.0.tools.learn(page);
                next
            });
            if cursor.is_none() {
                return;
            }
        }
        tracing::warn!("the server's list of tools has no end; the rest was not read");
    }

    async fn page_of_tools(
        &self,
        cursor: Option<Cursor>,
        asking: &Request,
        heard: &Heard,
    ) -> Option<Json> {
        let mut params = PaginatedRequestParams::default();
        params.cursor = cursor;
        let params = Json::encode(&params).ok()?;
        let list = Request::new(ListToolsRequest::NAME, params, asking.caller.clone());
        let reservation = self.0.ids.reserve(None).ok()?;
        let unheard = Heard {
            said: Arc::new(Said::closed()),
            pause: heard.pause.clone(),
        };
        let page = self.round_trip(reservation.id(), &list, &unheard).await;
        page.ok()?.ok()
    }

    /// One POST, up to its answer.
    async fn round_trip(
        &self,
        id: &RequestId,
        request: &Request,
        heard: &Heard,
    ) -> Result<Outcome> {
        let response = self.post(id, request, &heard.pause).await?;
        let reply = read(&self.0.endpoint, response).await?;
        match reply {
            Reply::Bare(status) => Err(no_answer(status)),
            Reply::Json(status, body) => match message(&body) {
                Ok(Message::Response(response)) if answers(response.id.as_ref(), id) => {
                    Ok(response.outcome)
                }
                // Some servers name an id of their own in what they say before they have read ours.
                Ok(Message::Response(response))
                    if !status.is_success() && response.outcome.is_err() =>
                {
                    Ok(response.outcome)
                }
                Ok(_) => Err(Error::protocol("the response answers another request")),
                // A JSON body that is no message, at an error status: the status says more.
                Err(_) if !status.is_success() => Err(no_answer(status)),
                Err(error) => Err(error),
            },
            Reply::Events(mut events) => loop {
                let Some(data) = events.next_message().await? else {
                    let what = "the response ended without an answer".into();
                    return Err(Error::Transport { what, source: None });
                };
                match message(&data)? {
                    Message::Response(response) if answers(response.id.as_ref(), id) => {
                        self.0.endpoint.drain.finish(events);
                        return Ok(response.outcome);
                    }
                    Message::Notification(notification) => {
                        heard.said.push(notification);
                        // Nothing is read meanwhile, so that the flow control of HTTP holds the server back.
                        heard.said.has_room().await;
                    }
                    Message::Response(_) | Message::Request(_) => {
                        tracing::warn!(
                            "the server sent something that does not belong in this response"
                        );
                    }
                }
            },
        }
    }

    async fn post(
        &self,
        id: &RequestId,
        request: &Request,
        pause: &Pause,
    ) -> Result<Response<ResponseBody>> {
        let stamped = self.0.stamper.stamp(request);
        let plan = self.plan(request);
        let headers = || {
            let mirrored = Mirrored {
                version: request.caller.dialect.version,
                method: &request.method,
                // As they are without the envelope, of which nothing is mirrored by name.
                params: Some(&request.params),
                name_member: name_member(&request.method),
            };
            let mut headers = message_headers();
            mirror(mirrored, plan.as_deref(), &mut headers)
                .map_err(|unmirrorable| Error::misuse(unmirrorable.to_string()))?;
            Ok(headers)
        };
        let frame = Message::from(stamped.with_id(id.clone())).to_frame();
        let outgoing = Outgoing {
            method: http::Method::POST,
            headers: &headers,
            frame,
            handed: &Handed::new(),
            when_refused: WhenRefused::AuthorizeWhile(pause),
        };
        self.0.endpoint.request(&outgoing).await
    }

    fn plan(&self, request: &Request) -> Option<Arc<ParamHeaders>> {
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
        let heard = Heard::default();
        let Heard { said, pause } = heard.clone();
        let future = self
            .clone()
            .exchange(reservation.id().clone(), request, heard);
        let driven = Driven::new(Box::pin(future), said, pause, reservation, &options);
        Exchange::new(driven)
    }
}

impl std::fmt::Debug for HttpChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpChannel")
            .field("uri", &self.0.endpoint.uri)
            .finish_non_exhaustive()
    }
}

/// What whoever waits for an exchange hears of it before its answer.
#[derive(Clone, Default)]
struct Heard {
    said: Arc<Said>,
    /// Whether its time counts.
    pause: Arc<Pause>,
}

/// How a page of a list names the next one.
#[derive(serde::Deserialize)]
struct NextPage {
    #[serde(rename = "nextCursor")]
    next_cursor: Option<Cursor>,
}

/// How many pages of tools are read for one call.
const MAX_PAGES: usize = 1000;

/// Whether a response with this id answers our request; an error may come without one.
fn answers(id: Option<&RequestId>, ours: &RequestId) -> bool {
    id.is_none_or(|id| CorrelationKey::from(id) == CorrelationKey::from(ours))
}
