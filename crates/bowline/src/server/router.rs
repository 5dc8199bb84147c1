//! From a method's name to what answers it.

use std::borrow::Cow;

use bowline_core::Outcome;
use bowline_core::era::Request;
use bowline_types::{
    CacheScope, CallToolRequest, DiscoverRequest, DiscoverResult, ErrorCode, Json,
    ListToolsRequest, ListToolsResult, Method, RpcError, SubscriptionsListenRequest,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::subscription::listen;
use super::tool::invalid_params;
use super::{Given, Server, Tool};
use crate::exchange::{BoxFuture, CancelMode, Context};

/// Answers a request, or says that nobody does.
pub(super) fn route<'a>(
    server: &'a Server,
    request: Request,
    cx: Context,
) -> BoxFuture<'a, Outcome> {
    let has_tools = !server.offer.tools.is_empty();
    match &*request.method {
        DiscoverRequest::NAME => Box::pin(std::future::ready(discover(server))),
        ListToolsRequest::NAME if has_tools => {
            Box::pin(std::future::ready(list_tools(server, &cx)))
        }
        CallToolRequest::NAME if has_tools => Box::pin(call_tool(server, request, cx)),
        SubscriptionsListenRequest::NAME => Box::pin(listen(server, request, cx)),
        method => Box::pin(std::future::ready(Err(nobody_answers(method)))),
    }
}

/// What becomes of the handler for `request` when its caller gives up.
pub(super) fn cancel_mode(server: &Server, request: &Request) -> CancelMode {
    if request.method != CallToolRequest::NAME {
        return CancelMode::Drop;
    }
    Called::read(&request.params)
        .ok()
        .and_then(|called| server.offer.tools.get(&*called.name))
        .map_or(CancelMode::Drop, Tool::mode)
}

fn discover(server: &Server) -> Outcome {
    let offer = &server.offer;
    let versions = offer
        .served
        .iter()
        .map(|dialect| dialect.protocol_version())
        .collect();
    let mut result = DiscoverResult::new(versions, offer.capabilities());
    result.instructions.clone_from(&offer.instructions);
    result.cache_scope = Some(CacheScope::PUBLIC);
    let mut meta = bowline_types::Meta::default();
    meta.set_server_info(&offer.identity);
    result.meta = Some(meta);
    encode(&result)
}

fn list_tools(server: &Server, cx: &Context) -> Outcome {
    let tools = &server.offer.tools;
    let list = || {
        let visible = tools.values().filter(|tool| tool.is_visible_to(cx));
        ListToolsResult::new(visible.map(|tool| tool.definition().clone()).collect())
    };
    if !tools.values().all(Tool::is_for_everybody) {
        let mut list = list();
        list.cache_scope = Some(CacheScope::PRIVATE);
        return encode(&list);
    }
    if let Some(list) = server.offer.tool_list.get() {
        return Ok(list.clone());
    }
    let list = encode(&list())?;
    Ok(server.offer.tool_list.get_or_init(|| list).clone())
}

async fn call_tool(server: &Server, request: Request, cx: Context) -> Outcome {
    let (tool, given) = {
        let called = Called::read(&request.params)?;
        let tool = server.offer.tools.get(&*called.name);
        let Some(tool) = tool.filter(|tool| tool.is_visible_to(&cx)) else {
            let why = format!("no tool is called `{}`", called.name);
            return Err(RpcError::new(ErrorCode::INVALID_PARAMS, why));
        };
        let arguments = called.arguments.map(|raw| request.params.part(raw));
        let meta = called.meta.map(|raw| request.params.part(raw));
        let given = Given::new(arguments.unwrap_or_else(Json::empty_object), cx);
        (tool, given.with_meta(meta))
    };
    let result = tool.call(given).await?;
    encode(&result)
}

/// The params of `tools/call` as far as the router needs them, without a copy.
#[derive(Deserialize)]
struct Called<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

impl<'a> Called<'a> {
    fn read(params: &'a Json) -> Result<Self, RpcError> {
        let called: Self = params.decode().map_err(invalid_params)?;
        if called
            .arguments
            .is_some_and(|raw| !raw.get().starts_with('{'))
        {
            return Err(RpcError::new(
                ErrorCode::INVALID_PARAMS,
                "`arguments` must be an object",
            ));
        }
        Ok(called)
    }
}

pub(super) fn encode(result: &impl Serialize) -> Outcome {
    Json::encode(result).map_err(|error| {
        tracing::error!(%error, "a result has no JSON form");
        RpcError::new(ErrorCode::INTERNAL_ERROR, "the result has no JSON form")
    })
}

fn nobody_answers(method: &str) -> RpcError {
    RpcError::new(
        ErrorCode::METHOD_NOT_FOUND,
        format!("nobody answers `{method}` here"),
    )
}
