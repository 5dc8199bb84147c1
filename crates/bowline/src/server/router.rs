//! Routes a request to its handler by its method.

use std::borrow::Cow;
use std::sync::Arc;

use bowline_core::era::Request;
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
use super::definition::ListKind;
use super::pagination::{list, list_with, requested_start};
use super::prompt::GetPromptParams;
use super::registry::RegistryEntry;
use super::resource::not_found;
use super::resource_list::listed_resources;
use super::subscription::ActiveSubscription;
use super::tool::invalid_params;
use super::visibility::Visible as _;
use super::{HandlerInput, Resource, ServerDefinition, ServerSnapshot, Tool};
use crate::exchange::{BoxFuture, Context, InsufficientScope};
use crate::layer::Next;

/// Answers a request. Methods of a capability that is not advertised are not found.
pub(super) fn route<'a>(
    server: &'a ServerSnapshot,
    request: Request,
    cx: Context,
) -> BoxFuture<'a, Outcome> {
    let definition = &server.definition;
    let dialect = request.caller.dialect;
    if !definition.has_method(&request.method) {
        return ready(Err(method_not_found(&request.method)));
    }
    match &*request.method {
        DiscoverRequest::NAME => ready(encode(&definition.discover_result())),
        ListToolsRequest::NAME => {
            let paging = definition.paging(ListKind::Tools, dialect);
            ready(list(
                &cx,
                &definition.tools.snapshot(),
                &request.params,
                &paging,
            ))
        }
        CallToolRequest::NAME => or_ready_error(call_tool(definition, request, cx)),
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
        SubscriptionsListenRequest::NAME => match ActiveSubscription::open(server, request, cx) {
            Ok(subscription) => Box::pin(subscription.run()),
            Err(error) => ready(Err(error)),
        },
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

/// Finds the called tool, checks its scopes and applies its layers.
fn call_tool<'a>(
    definition: &'a Arc<ServerDefinition>,
    request: Request,
    cx: Context,
) -> Result<BoxFuture<'a, Outcome>, RpcError> {
    let permit = definition.handlers.try_acquire()?;
    let params = CallToolParams::read(&request.params)?;
    let entry = {
        let name = params.name()?;
        let tools = definition.tools.snapshot();
        let entry = tools.find(&*name);
        let visible = entry.filter(|entry| entry.is_visible_to(&cx));
        visible.cloned().ok_or_else(|| {
            let why = format!("unknown tool `{}`", shortened(name));
            RpcError::new(ErrorCode::INVALID_PARAMS, why)
        })?
    };
    InsufficientScope::check(entry.item.required_scopes(), cx.principal())?;
    if entry.item.layers().is_empty() {
        return call_inside_layers(definition, entry, params, cx, Some(permit));
    }
    let (definition, inner_entry) = (definition.clone(), entry.clone());
    let inner = move |request: Request, cx| {
        // Read again, because a layer may have changed the request.
        let call = CallToolParams::read(&request.params).and_then(|params| {
            call_inside_layers(&definition, inner_entry.clone(), params, cx, None)
        });
        or_ready_error(call)
    };
    Ok(Box::pin(async move {
        let _permit = permit;
        let layers = entry.item.layers();
        Next::new(layers, inner, cx).run(request).await
    }))
}

/// Calls a tool, inside its layers.
fn call_inside_layers<'a>(
    definition: &ServerDefinition,
    entry: Arc<RegistryEntry<Tool>>,
    params: CallToolParams,
    mut cx: Context,
    permit: Option<SemaphorePermit<'a>>,
) -> Result<BoxFuture<'a, Outcome>, RpcError> {
    cx.extensions_mut().extend(&entry.state);
    let arguments = params.arguments.unwrap_or_else(Json::empty_object);
    let mut input = HandlerInput::new(arguments, cx).with_meta(params.meta);
    if entry.item.is_blocking() {
        input.hold_permit(definition.blocking.try_acquire_owned()?);
    }
    // Allocated for each call: the future captures as little as possible.
    Ok(Box::pin(async move {
        let _permit = permit;
        // Set at the first poll, and not earlier: a handler that was never polled has not started.
        if !input.context().set_cancel_mode(entry.item.mode()) {
            return Err(RpcError::new(ErrorCode::INTERNAL_ERROR, "cancelled"));
        }
        let result = entry.item.call(input).await?;
        result.to_json().map_err(serialize_failed)
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

/// The members of the params of `tools/call` that the router reads.
struct CallToolParams {
    name: Json,
    arguments: Option<Json>,
    meta: Option<Json>,
}

impl CallToolParams {
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
    Json::encode(result).map_err(serialize_failed)
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "the signature that `map_err` requires"
)]
fn serialize_failed(error: serde_json::Error) -> RpcError {
    tracing::error!(%error, "failed to serialize a result");
    RpcError::new(ErrorCode::INTERNAL_ERROR, "failed to serialize the result")
}

/// Returns the future of a call, or one that is ready with the error.
fn or_ready_error(call: Result<BoxFuture<'_, Outcome>, RpcError>) -> BoxFuture<'_, Outcome> {
    call.unwrap_or_else(|error| ready(Err(error)))
}

fn ready<'a>(outcome: Outcome) -> BoxFuture<'a, Outcome> {
    Box::pin(std::future::ready(outcome))
}

fn method_not_found(method: &str) -> RpcError {
    RpcError::new(
        ErrorCode::METHOD_NOT_FOUND,
        format!("method not found: `{}`", shortened(method)),
    )
}
