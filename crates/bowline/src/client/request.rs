//! What a client can ask for: builders that send when they are awaited or started.

use std::borrow::Cow;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::time::Duration;

use bowline_core::era::Request;
use bowline_core::json::Object;
use bowline_core::mux::CallOptions;
use bowline_types::{
    CallToolRequest, CallToolRequestParams, Json, ListToolsRequest, ListToolsResult, Meta, Method,
    PaginatedRequestParams, ProgressNotificationParams, RequestId,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::call::OnProgress;
use super::{Call, Client, Reply, encode_object};
use crate::exchange::{BoxFuture, Exchange};
use crate::{Error, Result};

/// A request that was not sent yet, of whatever kind.
struct Draft {
    client: Client,
    method: Cow<'static, str>,
    params: Result<Json>,
    options: CallOptions,
    meta: Option<Meta>,
    on_progress: Option<OnProgress>,
    by_hand: bool,
}

impl Draft {
    fn new(client: &Client, method: impl Into<Cow<'static, str>>, params: Result<Json>) -> Self {
        let options = CallOptions {
            idle_timeout: Some(client.inner.timeout),
            ..CallOptions::default()
        };
        Self {
            client: client.clone(),
            method: method.into(),
            params,
            options,
            meta: None,
            on_progress: None,
            by_hand: false,
        }
    }

    fn start(self) -> Call {
        let Self {
            client,
            method,
            params,
            options,
            meta,
            on_progress,
            by_hand,
        } = self;
        let params = params.and_then(|params| add_meta(params, meta.as_ref()));
        let (params, refusal) = match params {
            Ok(params) => (params, None),
            Err(error) => (Json::empty_object(), Some(error)),
        };
        let mut request = Request::new(method, params, client.inner.caller.clone());
        if on_progress.is_some() {
            request.progress_token = Some(client.mint_token());
        }
        let exchange = match refusal {
            None => client.inner.channel.open(request.clone(), options.clone()),
            Some(error) => Exchange::failed(error),
        };
        Call::new(client, request, options, on_progress, exchange).by_hand(by_hand)
    }
}

fn add_meta(params: Json, meta: Option<&Meta>) -> Result<Json> {
    let Some(meta) = meta else { return Ok(params) };
    let unusable = |error: serde_json::Error| Error::misuse(format!("unusable `_meta`: {error}"));
    let mut object = Object::read(&params).map_err(unusable)?;
    object.set("_meta", Json::encode(meta).map_err(unusable)?);
    Ok(object.to_json())
}

/// A call of a tool that was not made yet.
#[must_use = "nothing is sent until it is awaited or started"]
pub struct CallTool(Draft);

impl CallTool {
    pub(super) fn new(client: &Client, name: String, arguments: &impl Serialize) -> Self {
        let params = encode_object(arguments).and_then(|arguments| {
            let params = CallToolRequestParams::new(name).with_arguments(arguments);
            encode_object(&params)
        });
        Self(Draft::new(client, CallToolRequest::NAME, params))
    }
}

/// A list of tools that was not asked for yet.
#[must_use = "nothing is sent until it is awaited or started"]
pub struct ListTools {
    draft: Draft,
    params: PaginatedRequestParams,
}

impl ListTools {
    pub(super) fn new(client: &Client) -> Self {
        let draft = Draft::new(client, ListToolsRequest::NAME, Ok(Json::empty_object()));
        Self {
            draft,
            params: PaginatedRequestParams::default(),
        }
    }

    /// Asks for the page that an earlier answer named.
    pub fn cursor(mut self, cursor: impl Into<bowline_types::Cursor>) -> Self {
        self.params.cursor = Some(cursor.into());
        self.draft.params = encode_object(&self.params);
        self
    }
}

/// A request that no type describes and that was not sent yet.
#[must_use = "nothing is sent until it is awaited or started"]
pub struct RawCall(Draft);

impl RawCall {
    pub(super) fn new(client: &Client, method: String, params: &impl Serialize) -> Self {
        Self(Draft::new(client, method, encode_object(params)))
    }
}

/// A request of a known method that was not sent yet.
#[must_use = "nothing is sent until it is awaited or started"]
pub struct Typed<M> {
    draft: Draft,
    method: PhantomData<fn() -> M>,
}

impl<M: Method> Typed<M> {
    pub(super) fn new(client: &Client, params: &M::Params) -> Self {
        let draft = Draft::new(client, M::NAME, encode_object(params));
        Self {
            draft,
            method: PhantomData,
        }
    }
}

/// The setters that every kind of request has.
macro_rules! request_setters {
    ($name:ident $(<$parameter:ident>)?, $self:ident => $draft:expr) => {
        impl$(<$parameter: Method>)? $name$(<$parameter>)? {
            /// Uses this request id instead of a minted one.
            pub fn id(mut $self, id: impl Into<RequestId>) -> Self {
                $draft.options.id = Some(id.into());
                $self
            }

            /// How long to wait while nothing is heard of the request.
            pub fn timeout(mut $self, timeout: Duration) -> Self {
                $draft.options.idle_timeout = Some(timeout);
                $self
            }

            /// How long to wait in all, whatever is heard.
            pub fn total_timeout(mut $self, timeout: Duration) -> Self {
                $draft.options.total_timeout = Some(timeout);
                $self
            }

            /// Asks for progress, and calls `on_progress` with each report.
            pub fn on_progress(
                mut $self,
                on_progress: impl FnMut(ProgressNotificationParams) + Send + 'static,
            ) -> Self {
                $draft.on_progress = Some(Box::new(on_progress));
                $self
            }

            /// Sends this `_meta` along.
            pub fn meta(mut $self, meta: Meta) -> Self {
                $draft.meta = Some(meta);
                $self
            }

            /// Whether the server is told when the call is dropped before its answer. It is by default.
            pub fn cancel_on_abandon(mut $self, cancel: bool) -> Self {
                $draft.options.cancel_on_abandon = cancel;
                $self
            }

            /// Leaves the server's questions to the caller: if it needs input first, the call is over with
            /// [`Reply::input_required`](super::Reply::input_required), and it is up to the caller to send
            /// the request again with the answers.
            pub fn by_hand(mut $self) -> Self {
                $draft.by_hand = true;
                $self
            }

            /// Sends the request now, and returns the call that is then under way.
            pub fn start($self) -> Call {
                $draft.start()
            }
        }

        impl$(<$parameter>)? std::fmt::Debug for $name$(<$parameter>)? {
            fn fmt(&$self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).field("method", &$draft.method).finish_non_exhaustive()
            }
        }
    };
}

request_setters!(CallTool, self => self.0);
request_setters!(RawCall, self => self.0);
request_setters!(ListTools, self => self.draft);
request_setters!(Typed<M>, self => self.draft);

fn decoded<T: DeserializeOwned>(call: Call) -> BoxFuture<'static, Result<T>> {
    Box::pin(async { call.await?.decode() })
}

impl IntoFuture for CallTool {
    type Output = Result<Reply>;
    type IntoFuture = Call;

    fn into_future(self) -> Call {
        self.start()
    }
}

impl IntoFuture for RawCall {
    type Output = Result<Reply>;
    type IntoFuture = Call;

    fn into_future(self) -> Call {
        self.start()
    }
}

impl IntoFuture for ListTools {
    type Output = Result<ListToolsResult>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        decoded(self.start())
    }
}

impl<M: Method> IntoFuture for Typed<M> {
    type Output = Result<M::Result>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        decoded(self.start())
    }
}
