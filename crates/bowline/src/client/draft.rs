//! A request that was not sent yet: what is asked for, and on what terms.
//!
//! Every act of a client returns a [`Draft`]. The setters that all requests share are written once, here;
//! what only one act has stands beside that act. The type parameter says which act it is, and so what
//! awaiting it gives.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bowline_core::era::{Caller, Request};
use bowline_core::json::Object;
use bowline_core::mux::CallOptions;
use bowline_types::{
    Json, LoggingLevel, Meta, ProgressNotificationParams, RequestId, check_meta_key,
};

use super::caching::Freshness;
use super::call::OnProgress;
use super::{Call, Client};
use crate::exchange::{Exchange, TraceContext};
use crate::{Error, Result};

/// A request that was not sent yet. Awaiting it sends it; what varies is a setter.
///
/// # Cancel safety
///
/// Nothing is sent before it is awaited or started. After that, dropping the future cancels the request.
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # async fn example(client: bowline::Client) -> bowline::Result<()> {
/// let reply = client
///     .call_tool("index", serde_json::json!({"path": "src"}))
///     .timeout(Duration::from_secs(5))
///     .on_progress(|report| println!("{} so far", report.progress))
///     .await?;
/// # Ok(()) }
/// ```
#[must_use = "nothing is sent until it is awaited or started"]
pub struct Draft<A> {
    pub(super) terms: Terms,
    pub(super) act: A,
}

/// What is asked for, and everything that can be chosen about it, whatever the act.
pub(super) struct Terms {
    pub(super) client: Client,
    pub(super) method: Cow<'static, str>,
    /// What went wrong while they were written is told when the request is sent.
    pub(super) params: Result<Json>,
    pub(super) options: CallOptions,
    pub(super) meta: Option<Meta>,
    trace: Option<TraceContext>,
    pub(super) on_progress: Option<OnProgress>,
    log_level: Option<LoggingLevel>,
    pub(super) freshness: Freshness,
    is_checked: bool,
    by_hand: bool,
}

impl<A> Draft<A> {
    /// A request for `method`, on the client's usual terms.
    pub(super) fn new(
        client: &Client,
        method: impl Into<Cow<'static, str>>,
        params: Result<Json>,
        act: A,
    ) -> Self {
        let options = CallOptions {
            idle_timeout: Some(client.inner.timeout),
            ..CallOptions::default()
        };
        let terms = Terms {
            client: client.clone(),
            method: method.into(),
            params,
            options,
            meta: None,
            trace: None,
            on_progress: None,
            log_level: None,
            freshness: Freshness::Any,
            is_checked: client.inner.checks_capabilities,
            by_hand: false,
        };
        Self { terms, act }
    }

    /// Uses this request id instead of a minted one.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let call = client.call_tool("slow", ()).id("my-own").start();
    /// assert_eq!(call.id(), Some(&"my-own".into()));
    /// # Ok(()) }
    /// ```
    pub fn id(mut self, id: impl Into<RequestId>) -> Self {
        self.terms.options.id = Some(id.into());
        self
    }

    /// How long to wait while nothing is heard of the request.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// use std::time::Duration;
    ///
    /// let index = client.call_tool("index", ()).timeout(Duration::from_secs(5)).total_timeout(Duration::from_secs(60));
    /// index.on_progress(|report| println!("{}", report.progress)).await?;
    /// # Ok(()) }
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.terms.options.idle_timeout = Some(timeout);
        self
    }

    /// How long to wait in all, whatever is heard.
    pub fn total_timeout(mut self, timeout: Duration) -> Self {
        self.terms.options.total_timeout = Some(timeout);
        self
    }

    /// Asks for progress, and calls `on_progress` with each report.
    pub fn on_progress(
        mut self,
        on_progress: impl FnMut(ProgressNotificationParams) + Send + 'static,
    ) -> Self {
        self.terms.on_progress = Some(Box::new(on_progress));
        self
    }

    /// Sets `_meta`. The request fails if a key is [invalid](bowline_types::check_meta_key).
    pub fn meta(mut self, meta: Meta) -> Self {
        self.terms.meta = Some(meta);
        self
    }

    /// Says which trace the request belongs to; inside a handler, that of
    /// [its own request](crate::Context::trace). `None` leaves it to [`Connect::trace`](super::Connect::trace).
    ///
    /// It goes along as `traceparent` and `tracestate` in `_meta`, unless `_meta` has them already.
    ///
    /// # Examples
    ///
    /// ```
    /// # use bowline::{Client, Context};
    /// # async fn example(other: Client, cx: Context) -> bowline::Result<()> {
    /// let reply = other.call_tool("forecast", ()).trace(cx.trace()).await?;
    /// # Ok(()) }
    /// ```
    pub fn trace(mut self, trace: impl Into<Option<TraceContext>>) -> Self {
        self.terms.trace = trace.into();
        self
    }

    /// Asks for log messages of at least this severity while the request runs.
    ///
    /// In the legacy era the level belongs to the connection: use [`Client::set_log_level`].
    pub fn log_level(mut self, level: LoggingLevel) -> Self {
        self.terms.log_level = Some(level);
        self
    }

    /// Whether the server is told when the call is dropped, or takes too long, before its answer. It is by
    /// default. [`Call::cancel`] tells it either way.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let mut call = client.call_tool("rebuild", ()).cancel_on_abandon(false).start();
    /// tokio::select! {
    ///     reply = &mut call => println!("{}", reply?.text()),
    ///     () = user_went_home() => drop(call), // it goes on without us
    /// }
    /// # async fn user_went_home() {}
    /// # Ok(()) }
    /// ```
    pub fn cancel_on_abandon(mut self, cancel: bool) -> Self {
        self.terms.options.cancel_on_abandon = cancel;
        self
    }

    /// Asks the server even if a fresh result is at hand; the answer takes its place.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let tools = client.list_tools().refresh().await?;
    /// # Ok(()) }
    /// ```
    pub fn refresh(mut self) -> Self {
        self.terms.freshness = Freshness::New;
        self
    }

    /// Asks the server and leaves the cache alone.
    pub fn uncached(mut self) -> Self {
        self.terms.freshness = Freshness::Apart;
        self
    }

    /// Sends the request even if the server does not say that it offers such a thing.
    pub fn unchecked(mut self) -> Self {
        self.terms.is_checked = false;
        self
    }
}

impl<A: OneRequest> Draft<A> {
    /// Leaves the server's questions to the caller: if it needs input first, the call is over with
    /// [`Reply::input_required`](super::Reply::input_required), and it is up to the caller to send the
    /// request again with the answers.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let reply = client.call_tool("book", ()).by_hand().await?;
    /// if let Some(needed) = reply.input_required() {
    ///     println!("the server asks {:?}", needed.input_requests);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn by_hand(mut self) -> Self {
        self.terms.by_hand = true;
        self
    }

    /// Begins the request, and returns the call that is then under way.
    ///
    /// Over a duplex wire the request is queued now. In process, and over HTTP where a POST is the whole
    /// exchange, nothing runs beside the caller: the request is sent, and goes on, while the call is polled.
    pub fn start(self) -> Call {
        self.terms.start()
    }
}

/// Acts that are one request each, so that they can be started and held as a [`Call`].
pub trait OneRequest: sealed::Sealed {}

impl<A: sealed::Sealed> OneRequest for A {}

pub(super) mod sealed {
    /// Closes [`OneRequest`](super::OneRequest) to the outside.
    #[allow(unnameable_types, reason = "that is what seals a trait")]
    pub trait Sealed {}
}

impl Terms {
    /// The same terms for another request; what belongs to one request only is left out.
    pub(super) fn for_another_page(&self, params: Result<Json>) -> Self {
        Self {
            client: self.client.clone(),
            method: self.method.clone(),
            params,
            options: CallOptions {
                id: None,
                ..self.options.clone()
            },
            meta: self.meta.clone(),
            trace: self.trace.clone(),
            on_progress: None,
            log_level: self.log_level,
            freshness: self.freshness,
            is_checked: self.is_checked,
            by_hand: self.by_hand,
        }
    }

    /// Sends the request.
    pub(super) fn start(self) -> Call {
        let Self {
            client,
            method,
            params,
            options,
            meta,
            trace,
            on_progress,
            log_level,
            freshness,
            is_checked,
            by_hand,
        } = self;
        let params = params
            .and_then(|params| add_meta(params, meta))
            .and_then(|params| {
                let trace = trace.or_else(|| client.trace());
                add_trace(params, trace.as_ref())
            })
            .and_then(|params| match is_checked {
                true => client.check_offered(&method).map(|()| params),
                false => Ok(params),
            });
        let (params, refusal) = match params {
            Ok(params) => (params, None),
            Err(error) => (Json::empty_object(), Some(error)),
        };
        let mut request = Request::new(method, params, asking(client.caller(), log_level));
        if on_progress.is_some() {
            request.progress_token = Some(client.mint_token());
        }
        let exchange = match refusal {
            None => client.open(request.clone(), options.clone(), freshness),
            Some(error) => Exchange::failed(error),
        };
        Call::new(client, request, options, on_progress, exchange).by_hand(by_hand)
    }
}

fn asking(caller: Arc<Caller>, log_level: Option<LoggingLevel>) -> Arc<Caller> {
    if log_level.is_none() || log_level == caller.log_level {
        return caller;
    }
    let mut caller = Caller::clone(&caller);
    caller.log_level = log_level;
    Arc::new(caller)
}

fn add_meta(params: Json, meta: Option<Meta>) -> Result<Json> {
    let Some(meta) = meta else { return Ok(params) };
    for (key, _) in meta.iter() {
        check_meta_key(key).map_err(|error| unusable(format!("the key `{key}`: {error}")))?;
    }
    let mut object = Object::read(&params).map_err(unusable)?;
    object.set("_meta", Json::encode(&meta).map_err(unusable)?);
    Ok(object.to_json())
}

fn add_trace(params: Json, trace: Option<&TraceContext>) -> Result<Json> {
    let Some(trace) = trace else {
        return Ok(params);
    };
    let mut object = Object::read(&params).map_err(unusable)?;
    let mut meta: Meta = match object.member("_meta") {
        Some(meta) => meta.decode().map_err(unusable)?,
        None => Meta::default(),
    };
    // What the caller wrote there by hand is meant.
    if meta.traceparent().is_ok_and(|own| own.is_some()) {
        return Ok(params);
    }
    trace.write(&mut meta);
    object.set("_meta", Json::encode(&meta).map_err(unusable)?);
    Ok(object.to_json())
}

#[allow(clippy::needless_pass_by_value, reason = "it is made for `map_err`")]
fn unusable(error: impl std::fmt::Display) -> Error {
    Error::misuse(format!("unusable `_meta`: {error}"))
}

impl<A> std::fmt::Debug for Draft<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Draft")
            .field("method", &self.terms.method)
            .finish_non_exhaustive()
    }
}
