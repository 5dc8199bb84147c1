//! [`ToolHeaders`]: mirrors tool arguments in headers (`x-mcp-header`) for a connection without a client.
//!
//! The annotations are read from the `tools/list` results that pass. A call that the server rejects because of its
//! headers is sent again, once, if listing the tools shows that they were outdated:
//!
//! ```text
//! Calling ──headers rejected──▶ Listing ──other headers──▶ Calling ──▶ answer
//!    └──any other answer           └──the same headers──▶ the error
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::{self, Poll, ready};
use std::time::Duration;

use bowline_core::era::{Caller, Request};
use bowline_core::http::headers::ParamHeaders;
use bowline_types::{ErrorCode, Json, ListToolsRequest, Method, RequestId};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::client::known_tools::{ArgumentHeaders, KnownTools, PageSource};
use crate::exchange::{Answer, BoxFuture, CallOptions, Exchange, ExchangeEvent, PollExchange};
use crate::http::client::HttpChannel;
use crate::{Error, Result};

/// Sends `tools/list` and `tools/call`, and learns from their answers which arguments are mirrored.
#[derive(Clone)]
pub(super) struct ToolHeaders {
    channel: HttpChannel,
    tools: Arc<KnownTools>,
}

impl ToolHeaders {
    pub(super) fn new(channel: HttpChannel, tools: Arc<KnownTools>) -> Self {
        Self { channel, tools }
    }

    /// Sends `tools/list`. The answer lacks the tools whose annotations are invalid.
    pub(super) fn list(&self, request: Request, options: &CallOptions) -> Exchange {
        Exchange::new(ListingExchange {
            requested_at: self.tools.changes(),
            exchange: self.channel.open(request, options, None),
            tools: self.tools.clone(),
        })
    }

    /// Sends `tools/call`, and sends it again if its headers were outdated.
    pub(super) fn call(&self, request: Request, options: CallOptions) -> Exchange {
        let headers = self.tools.param_headers(&request);
        let exchange = self
            .channel
            .open(request.clone(), &options, headers.clone());
        Exchange::new(CallingExchange {
            tool_headers: self.clone(),
            request,
            options,
            headers,
            began: Instant::now(),
            is_corrected: false,
            paused: Duration::ZERO,
            phase: CallPhase::Calling(exchange),
        })
    }

    /// Lists the tools until the headers of `request` are not `outdated` any more.
    async fn update(self, request: Request, outdated: Option<Arc<ParamHeaders>>) {
        // One call lists them for all that wait.
        let _turn = self.tools.listing_turn().await;
        let is_outdated = || self.tools.param_headers(&request) == outdated;
        let (mut cursor, mut earlier) = (None, BTreeSet::new());
        while is_outdated() && earlier.len() < MAX_PAGES {
            match self.list_page(&request.caller, cursor).await {
                Ok(Some(next)) if earlier.insert(next.clone()) => cursor = Some(next),
                Ok(_) => return,
                Err(error) => {
                    return tracing::warn!(%error, "failed to list the tools, to correct headers");
                }
            }
        }
    }

    /// Lists one page of the tools. Returns the cursor of the next one.
    async fn list_page(
        &self,
        caller: &Arc<Caller>,
        cursor: Option<String>,
    ) -> Result<Option<String>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct NextCursor {
            #[serde(default)]
            next_cursor: Option<String>,
        }

        let params = cursor.map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
        let request = Request::new(ListToolsRequest::NAME, Json::from(params), caller.clone());
        let exchange = self.list(request, &CallOptions::default());
        let Answer::Complete(page) = exchange.answer().await? else {
            return Err(Error::protocol(
                "expected a complete result of `tools/list`",
            ));
        };
        let next: NextCursor = page
            .decode()
            .map_err(|error| Error::undecodable("the `tools/list` result is malformed", error))?;
        Ok(next.next_cursor)
    }
}

/// A `tools/list` whose result is learned from.
struct ListingExchange {
    exchange: Exchange,
    tools: Arc<KnownTools>,
    /// The number of changes of the tools when it was sent.
    requested_at: u64,
}

impl PollExchange for ListingExchange {
    fn poll_event(&mut self, cx: &mut task::Context<'_>) -> Poll<ExchangeEvent> {
        Poll::Ready(match ready!(self.exchange.poll_event(cx)) {
            ExchangeEvent::Answered(Ok(Answer::Complete(page))) => {
                let (sent, source) = (ArgumentHeaders::Sent, PageSource::Server);
                let page = self.tools.store(&page, sent, self.requested_at, source);
                ExchangeEvent::Answered(Ok(Answer::Complete(page)))
            }
            event => event,
        })
    }

    fn request_id(&self) -> Option<&RequestId> {
        self.exchange.request_id()
    }

    fn paused(&self) -> Duration {
        self.exchange.paused()
    }

    fn cancel(self: Box<Self>, reason: String) {
        self.exchange.cancel(reason);
    }
}

/// A `tools/call` that is sent again if its headers were outdated.
struct CallingExchange {
    tool_headers: ToolHeaders,
    request: Request,
    options: CallOptions,
    /// The headers that the request was sent with.
    headers: Option<Arc<ParamHeaders>>,
    began: Instant,
    is_corrected: bool,
    /// The pauses of the first request, once it was rejected.
    paused: Duration,
    phase: CallPhase,
}

enum CallPhase {
    Calling(Exchange),
    /// The tools are listed after this error.
    Listing(BoxFuture<'static, ()>, Error),
    Done,
}

impl CallingExchange {
    fn start_listing(&mut self, error: Error, paused: Duration) {
        self.is_corrected = true;
        self.paused = paused;
        let limits = [self.options.idle_timeout, self.remaining_time()];
        let limit = limits
            .into_iter()
            .flatten()
            .fold(LISTING_LIMIT, Duration::min);
        let tool_headers = self.tool_headers.clone();
        let update = tool_headers.update(self.request.clone(), self.headers.clone());
        // At the limit, what was learned by then is used.
        let listing = async move { drop(timeout(limit, update).await) };
        self.phase = CallPhase::Listing(Box::pin(listing), error);
    }

    /// Sends the request again, or returns the error if that would not help.
    fn send_again(&mut self, error: Error) -> Result<()> {
        let headers = self.tool_headers.tools.param_headers(&self.request);
        if headers == self.headers {
            return Err(error);
        }
        let timeout = self.remaining_time();
        if timeout == Some(Duration::ZERO) {
            let after = self.options.timeout.unwrap_or_default();
            return Err(Error::Timeout { after });
        }
        let options = CallOptions {
            timeout,
            id: None, // a new request must not reuse an id that the caller chose
            ..self.options.clone()
        };
        let channel = &self.tool_headers.channel;
        let exchange = channel.open(self.request.clone(), &options, headers);
        self.phase = CallPhase::Calling(exchange);
        Ok(())
    }

    /// Returns the rest of the total timeout.
    fn remaining_time(&self) -> Option<Duration> {
        let total = self.options.timeout?.saturating_add(self.paused);
        Some(total.saturating_sub(self.began.elapsed()))
    }
}

impl PollExchange for CallingExchange {
    fn poll_event(&mut self, cx: &mut task::Context<'_>) -> Poll<ExchangeEvent> {
        loop {
            match &mut self.phase {
                CallPhase::Calling(exchange) => match ready!(exchange.poll_event(cx)) {
                    ExchangeEvent::Answered(Err(error))
                        if !self.is_corrected && is_header_mismatch(&error) =>
                    {
                        let paused = exchange.paused();
                        self.start_listing(error, paused);
                    }
                    event => return Poll::Ready(event),
                },
                CallPhase::Listing(listing, error) => {
                    ready!(listing.as_mut().poll(cx));
                    let error = std::mem::replace(error, Error::Closed);
                    self.phase = CallPhase::Done;
                    if let Err(error) = self.send_again(error) {
                        return Poll::Ready(ExchangeEvent::Answered(Err(error)));
                    }
                }
                CallPhase::Done => return Poll::Ready(ExchangeEvent::Answered(Err(Error::Closed))),
            }
        }
    }

    fn request_id(&self) -> Option<&RequestId> {
        match &self.phase {
            CallPhase::Calling(exchange) => exchange.request_id(),
            CallPhase::Listing(..) | CallPhase::Done => None,
        }
    }

    fn paused(&self) -> Duration {
        match &self.phase {
            CallPhase::Calling(exchange) => self.paused + exchange.paused(),
            CallPhase::Listing(..) | CallPhase::Done => self.paused,
        }
    }

    fn cancel(self: Box<Self>, reason: String) {
        if let CallPhase::Calling(exchange) = self.phase {
            exchange.cancel(reason);
        }
    }
}

/// Returns whether the server rejected the headers of a request, which proves that it did not run.
fn is_header_mismatch(error: &Error) -> bool {
    matches!(error, Error::Rpc(error) if error.code == ErrorCode::HEADER_MISMATCH)
}

/// How many pages of tools are listed for one call.
const MAX_PAGES: usize = 100;
/// How long the tools are listed for one call, at most.
const LISTING_LIMIT: Duration = Duration::from_secs(30);
