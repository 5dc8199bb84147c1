//! From a method's name to what answers it.

use std::borrow::Cow;
use std::sync::Arc;

use bowline_core::era::{Caller, Request};
use bowline_core::json::Params;
use bowline_core::{Outcome, shortened};
use bowline_types::{
    CallToolRequest, CompleteRequest, CompleteResult, DiscoverRequest, ErrorCode, GetPromptRequest,
    Json, ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest,
    Method, ReadResourceRequest, RpcError, SubscriptionsListenRequest,
};
use serde::{Deserialize, Serialize};
use tokio::sync::SemaphorePermit;

use super::completion::complete;
use super::offer::List;
use super::page::{list, list_for};
use super::prompt::Asked;
use super::registry::Offered;
use super::resource::not_found;
use super::subscription::Subscription;
use super::tool::invalid_params;
use super::{Given, Offer, Server, Tool};
use crate::exchange::{BoxFuture, Context, InsufficientScope, Responder};
use crate::layer::Next;

/// Answers a request, or says that nobody does. What is not advertised is not answered.
pub(super) fn route<'a>(
    server: &'a Server,
    request: Request,
    cx: Context,
) -> BoxFuture<'a, Outcome> {
    let offer = &server.offer;
    let dialect = request.caller.dialect;
    match &*request.method {
        DiscoverRequest::NAME => ready(encode(&offer.introduction())),
        ListToolsRequest::NAME if offer.has_tools() => {
            let paging = offer.paging(List::Tools, dialect);
            ready(list_for(&cx, &offer.tools.now(), &request.params, &paging))
        }
        CallToolRequest::NAME if offer.has_tools() => begun(call_tool(offer, request, cx)),
        ListPromptsRequest::NAME if offer.has_prompts() => {
            let paging = offer.paging(List::Prompts, dialect);
            ready(list(&offer.prompts.now(), &request.params, &paging))
        }
        GetPromptRequest::NAME if offer.has_prompts() => Box::pin(render(offer, request, cx)),
        ListResourcesRequest::NAME if offer.has_resources() => {
            let paging = offer.paging(List::Resources, dialect);
            ready(list(&offer.resources.now(), &request.params, &paging))
        }
        ListResourceTemplatesRequest::NAME if offer.has_resources() => {
            let paging = offer.paging(List::ResourceTemplates, dialect);
            ready(list(&offer.templates.now(), &request.params, &paging))
        }
        ReadResourceRequest::NAME if offer.has_resources() => Box::pin(read(offer, request, cx)),
        CompleteRequest::NAME if offer.has_completions() => Box::pin(propose(offer, request, cx)),
        SubscriptionsListenRequest::NAME => match Subscription::open(server, request, cx) {
            Ok(subscription) => Box::pin(subscription.run()),
            Err(error) => ready(Err(error)),
        },
        method => ready(Err(nobody_answers(method))),
    }
}

/// What the principal of a request must be allowed, as far as that is nobody's secret: a tool that not
/// everybody sees speaks for itself once it is clear who is asking.
pub(super) fn scopes(server: &Server, method: &str, params: Option<&Params>) -> Vec<String> {
    let Some(params) = params.filter(|_| method == CallToolRequest::NAME) else {
        return Vec::new();
    };
    let tools = server.offer.tools.now();
    let called = Called::read(params).ok();
    let name = called.as_ref().and_then(|called| called.name().ok());
    name.and_then(|name| tools.find(&name))
        .filter(|offered| offered.item.is_for_everybody())
        .map(|offered| offered.item.scopes_needed().to_vec())
        .unwrap_or_default()
}

/// Finds the tool that is called, and begins to call it.
fn call_tool<'a>(
    offer: &'a Arc<Offer>,
    request: Request,
    cx: Context,
) -> Result<BoxFuture<'a, Outcome>, RpcError> {
    let permit = offer.handlers.take()?;
    let called = Called::read(&request.params)?;
    let offered = {
        let name = called.name()?;
        let tools = offer.tools.now();
        let visible = tools
            .find(&name)
            .filter(|offered| offered.item.is_visible_to(&cx));
        visible.cloned().ok_or_else(|| {
            let why = format!("no tool is called `{}`", shortened(name));
            RpcError::new(ErrorCode::INVALID_PARAMS, why)
        })?
    };
    InsufficientScope::check(offered.item.scopes_needed(), cx.principal())?;
    if offered.item.layers().is_empty() {
        return call_offered(offer, offered, called, cx, Some(permit));
    }
    let inside = WithoutLayers {
        offer: offer.clone(),
        offered: offered.clone(),
    };
    Ok(Box::pin(async move {
        let _permit = permit;
        let layers = offered.item.layers();
        Next::around(layers, inside, cx).run(request).await
    }))
}

/// Begins to call a tool that was found.
fn call_offered<'a>(
    offer: &Offer,
    offered: Arc<Offered<Tool>>,
    called: Called,
    mut cx: Context,
    permit: Option<SemaphorePermit<'a>>,
) -> Result<BoxFuture<'a, Outcome>, RpcError> {
    cx.extensions_mut().extend(&offered.state);
    let arguments = called.arguments.unwrap_or_else(Json::empty_object);
    let mut given = Given::new(arguments, cx).with_meta(called.meta);
    if offered.item.is_blocking() {
        given.hold(offer.blocking.take_owned()?);
    }
    // Little is kept from here on: this is allocated for each call.
    Ok(Box::pin(async move {
        let _permit = permit;
        // Not before it is polled: until then it has not started.
        if !given.context().choose(offered.item.mode()) {
            return Err(RpcError::new(ErrorCode::INTERNAL_ERROR, "cancelled"));
        }
        let result = offered.item.call(given).await?;
        result.to_json().map_err(no_json_form)
    }))
}

/// A tool inside its layers.
struct WithoutLayers {
    offer: Arc<Offer>,
    offered: Arc<Offered<Tool>>,
}

impl Responder for WithoutLayers {
    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome> {
        // A layer may have changed the request.
        let calling = Called::read(&request.params)
            .and_then(|called| call_offered(&self.offer, self.offered.clone(), called, cx, None));
        begun(calling)
    }

    fn roots_changed(&self, _: &Caller) {} // the server hears of it
}

async fn render(offer: &Offer, request: Request, mut cx: Context) -> Outcome {
    let _permit = offer.handlers.take()?;
    let asked = Asked::read(&request.params)?;
    let prompts = offer.prompts.now();
    let Some(offered) = prompts.find(&asked.name) else {
        let why = format!("no prompt is called `{}`", shortened(&asked.name));
        return Err(RpcError::new(ErrorCode::INVALID_PARAMS, why));
    };
    cx.extensions_mut().extend(&offered.state);
    encode(&offered.item.render(asked, cx).await?)
}

async fn read(offer: &Offer, request: Request, mut cx: Context) -> Outcome {
    #[derive(Deserialize)]
    struct Target {
        uri: String,
    }

    let _permit = offer.handlers.take()?;
    let Target { uri } = request.params.decode().map_err(invalid_params)?;
    let resources = offer.resources.now();
    if let Some(offered) = resources.find(&uri) {
        cx.extensions_mut().extend(&offered.state);
        return encode(&offered.item.read(uri, cx).await?);
    }
    let templates = offer.templates.now();
    let fitting = templates.entries().values().filter_map(|offered| {
        let template = offered.item.uri_template();
        template
            .find(&uri)
            .map(|found| (template.literal_len(), offered, found))
    });
    // Of equals the first in the order of the list: `max_by_key` would take the last.
    let best = fitting.reduce(|best, next| if next.0 > best.0 { next } else { best });
    let Some((_, offered, variables)) = best else {
        return Err(not_found(&uri));
    };
    cx.extensions_mut().extend(&offered.state);
    encode(&offered.item.read(uri, variables, cx).await?)
}

async fn propose(offer: &Offer, request: Request, cx: Context) -> Outcome {
    let _permit = offer.handlers.take()?;
    let asked = request.params.decode().map_err(invalid_params)?;
    let completion = complete(offer, asked, cx).await?;
    encode(&CompleteResult::new(completion))
}

/// The params of `tools/call` as far as the router needs them.
struct Called {
    name: Json,
    arguments: Option<Json>,
    meta: Option<Json>,
}

impl Called {
    fn read(params: &Params) -> Result<Self, RpcError> {
        let invalid = |why| RpcError::new(ErrorCode::INVALID_PARAMS, why);
        let member = |name| {
            let found = params.member(name);
            found.map_err(|why| invalid(format!("`params`: {}", shortened(why))))
        };
        let name = member("name")?.ok_or_else(|| invalid("`name` is missing".to_owned()))?;
        let arguments = member("arguments")?.filter(|arguments| !arguments.is_null());
        if arguments.as_ref().is_some_and(|it| !it.is_object()) {
            return Err(invalid("`arguments` must be an object".to_owned()));
        }
        Ok(Self {
            name,
            arguments,
            meta: member("_meta")?.filter(|meta| !meta.is_null()),
        })
    }

    fn name(&self) -> Result<Cow<'_, str>, RpcError> {
        self.name.text().map_err(invalid_params)
    }
}

pub(super) fn encode(result: &impl Serialize) -> Outcome {
    Json::encode(result).map_err(no_json_form)
}

#[allow(clippy::needless_pass_by_value, reason = "it is made for `map_err`")]
fn no_json_form(error: serde_json::Error) -> RpcError {
    tracing::error!(%error, "a result has no JSON form");
    RpcError::new(ErrorCode::INTERNAL_ERROR, "the result has no JSON form")
}

/// What has begun, or failed at once.
fn begun(begun: Result<BoxFuture<'_, Outcome>, RpcError>) -> BoxFuture<'_, Outcome> {
    begun.unwrap_or_else(|error| ready(Err(error)))
}

fn ready<'a>(outcome: Outcome) -> BoxFuture<'a, Outcome> {
    Box::pin(std::future::ready(outcome))
}

fn nobody_answers(method: &str) -> RpcError {
    RpcError::new(
        ErrorCode::METHOD_NOT_FOUND,
        format!("nobody answers `{}` here", shortened(method)),
    )
}
