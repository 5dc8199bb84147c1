//! Routes a request to its handler by its method.

use bowline_core::era::Request;
use bowline_core::json::Params;
use bowline_core::{Outcome, shortened};
use bowline_types::{
    CallToolRequest, CompleteRequest, CompleteResult, DiscoverRequest, ErrorCode, GetPromptRequest,
    Json, ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest,
    Method, ReadResourceRequest, RpcError, SubscriptionsListenRequest,
};
use serde::{Deserialize, Serialize};

use super::completion::complete;
use super::definition::ListKind;
use super::extension::RegisteredExtension;
use super::pagination::{list, list_with, requested_start};
use super::prompt::GetPromptParams;
use super::resource::not_found;
use super::resource_list::listed_resources;
use super::subscription::listen;
use super::tool::invalid_params;
use super::tool_call::{CallToolParams, call_tool};
use super::visibility::Visible as _;
use super::{Resource, ServerDefinition, ServerSnapshot};
use crate::exchange::{BoxFuture, Context};

/// Answers a request. Methods of a capability that is not advertised are not found.
pub(super) fn route<'a>(
    server: &'a ServerSnapshot,
    request: Request,
    cx: Context,
) -> BoxFuture<'a, Outcome> {
    let definition = &server.definition;
    let dialect = request.caller.dialect;
    if let Some(extension) = definition.extension_of_method(&request.method) {
        return or_ready_error(respond_by_extension(definition, extension, request, cx));
    }
    if !definition.has_method(&request.method) {
        return ready(Err(method_not_found(&request.method)));
    }
    match &*request.method {
        DiscoverRequest::NAME => ready(encode(&definition.discover_result(&cx))),
        ListToolsRequest::NAME => {
            let paging = definition.paging(ListKind::Tools, dialect);
            ready(list(
                &cx,
                &definition.tools.snapshot(),
                &request.params,
                &paging,
            ))
        }
        CallToolRequest::NAME => or_ready_error(call_tool(server, request, cx)),
        ListPromptsRequest::NAME => {
            let paging = definition.paging(ListKind::Prompts, dialect);
            ready(list(
                &cx,
                &definition.prompts.snapshot(),
                &request.params,
                &paging,
            ))
        }
        GetPromptRequest::NAME => Box::pin(get_prompt(definition, request, cx)),
        ListResourcesRequest::NAME if !definition.resource_lists.is_empty() => {
            Box::pin(list_resources(definition, request, cx))
        }
        ListResourcesRequest::NAME => {
            let paging = definition.paging(ListKind::Resources, dialect);
            ready(list(
                &cx,
                &definition.resources.snapshot(),
                &request.params,
                &paging,
            ))
        }
        ListResourceTemplatesRequest::NAME => {
            let paging = definition.paging(ListKind::ResourceTemplates, dialect);
            ready(list(
                &cx,
                &definition.templates.snapshot(),
                &request.params,
                &paging,
            ))
        }
        ReadResourceRequest::NAME => Box::pin(read_resource(definition, request, cx)),
        CompleteRequest::NAME => Box::pin(complete_argument(definition, request, cx)),
        SubscriptionsListenRequest::NAME => or_ready_error(listen(server, &request, cx)),
        method => ready(Err(method_not_found(method))),
    }
}

/// Returns the scopes that a request requires.
///
/// Empty for a tool with [`Tool::visible_to`]: the scopes would reveal the tool to callers who may not see it. They are
/// checked when it is called, after its visibility.
pub(super) fn required_scopes(
    definition: &ServerDefinition,
    method: &str,
    params: Option<&Params>,
) -> Vec<String> {
    let Some(params) = params.filter(|_| method == CallToolRequest::NAME) else {
        return Vec::new();
    };
    let tools = definition.tools.snapshot();
    let call = CallToolParams::read(params).ok();
    let name = call.as_ref().and_then(|call| call.name().ok());
    name.and_then(|name| tools.find(&*name))
        .filter(|entry| entry.item.visibility().is_public())
        .map(|entry| entry.item.required_scopes().to_vec())
        .unwrap_or_default()
}

/// Answers a request for a method of an extension.
fn respond_by_extension<'a>(
    definition: &'a ServerDefinition,
    extension: &'a RegisteredExtension,
    request: Request,
    cx: Context,
) -> Result<BoxFuture<'a, Outcome>, RpcError> {
    if !extension.has_method_in(&request.method, request.caller.dialect) {
        return Err(method_not_found(&request.method));
    }
    extension.check_declared(&request.caller)?;
    let permit = definition.handlers.try_acquire()?;
    Ok(Box::pin(async move {
        let _permit = permit;
        extension.extension.respond(request, cx).await
    }))
}

async fn get_prompt(definition: &ServerDefinition, request: Request, mut cx: Context) -> Outcome {
    let _permit = definition.handlers.try_acquire()?;
    let params = GetPromptParams::read(&request.params)?;
    let prompts = definition.prompts.snapshot();
    let entry = prompts.find(&params.name);
    let visible = entry.filter(|entry| entry.is_visible_to(&cx));
    let Some(entry) = visible else {
        let why = format!("unknown prompt `{}`", shortened(&params.name));
        return Err(RpcError::new(ErrorCode::INVALID_PARAMS, why));
    };
    cx.extensions_mut().extend(&entry.state);
    encode(&entry.item.render(params, cx).await?)
}

/// Lists the resources of the registry and those that callbacks supply.
async fn list_resources(definition: &ServerDefinition, request: Request, cx: Context) -> Outcome {
    let _permit = definition.handlers.try_acquire()?;
    // Before the callbacks, which may be expensive.
    let after = requested_start::<Resource>(&request.params)?;
    let supplied = listed_resources(&definition.resource_lists, &cx).await?;
    let paging = definition.paging(ListKind::Resources, request.caller.dialect);
    let resources = definition.resources.snapshot();
    list_with(supplied, after.as_deref(), &cx, &resources, &paging)
}

async fn read_resource(
    definition: &ServerDefinition,
    request: Request,
    mut cx: Context,
) -> Outcome {
    #[derive(Deserialize)]
    struct ReadResourceParams {
        uri: String,
    }

    let _permit = definition.handlers.try_acquire()?;
    let ReadResourceParams { uri } = request.params.decode().map_err(invalid_params)?;
    let resources = definition.resources.snapshot();
    let entry = resources.find(&uri);
    // A hidden resource is as good as absent: a template may match its URI.
    let visible = entry.filter(|entry| entry.is_visible_to(&cx));
    if let Some(entry) = visible {
        cx.extensions_mut().extend(&entry.state);
        return encode(&entry.item.read(uri, cx).await?);
    }
    let templates = definition.templates.snapshot();
    let matching = templates.entries().values().filter_map(|entry| {
        let template = entry.item.uri_template();
        template
            .find(&uri)
            .map(|found| (template.literal_len(), entry, found))
    });
    let matching = matching.filter(|(_, entry, _)| entry.is_visible_to(&cx));
    // The first of equals, in the order of the list: `max_by_key` would return the last.
    let best = matching.reduce(|best, next| if next.0 > best.0 { next } else { best });
    let Some((_, entry, variables)) = best else {
        return Err(not_found(&uri));
    };
    cx.extensions_mut().extend(&entry.state);
    encode(&entry.item.read(uri, variables, cx).await?)
}

async fn complete_argument(
    definition: &ServerDefinition,
    request: Request,
    cx: Context,
) -> Outcome {
    let _permit = definition.handlers.try_acquire()?;
    let params = request.params.decode().map_err(invalid_params)?;
    let completion = complete(definition, params, cx).await?;
    encode(&CompleteResult::new(completion))
}

pub(super) fn encode(result: &impl Serialize) -> Outcome {
    Json::encode(result).map_err(serialize_failed)
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "the signature that `map_err` requires"
)]
pub(super) fn serialize_failed(error: serde_json::Error) -> RpcError {
    tracing::error!(%error, "failed to serialize a result");
    RpcError::new(ErrorCode::INTERNAL_ERROR, "failed to serialize the result")
}

/// Returns the future of a call, or one that is ready with the error.
pub(super) fn or_ready_error(
    call: Result<BoxFuture<'_, Outcome>, RpcError>,
) -> BoxFuture<'_, Outcome> {
    call.unwrap_or_else(|error| ready(Err(error)))
}

pub(super) fn ready<'a>(outcome: Outcome) -> BoxFuture<'a, Outcome> {
    Box::pin(std::future::ready(outcome))
}

fn method_not_found(method: &str) -> RpcError {
    RpcError::new(
        ErrorCode::METHOD_NOT_FOUND,
        format!("method not found: `{}`", shortened(method)),
    )
}
