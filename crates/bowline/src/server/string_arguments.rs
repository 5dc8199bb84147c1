//! The handler for an `async fn` of extractors behind a prompt, a resource or a completer, whose arguments are strings.

use std::collections::BTreeSet;
use std::marker::PhantomData;

use bowline_types::{
    Completion, ErrorCode, GetPromptResult, Json, PromptArgument, ReadResourceResult, RpcError,
};
use serde_json::{Map, Value};

use super::completion::{CompletionHandler, CompletionInput, IntoCompletion};
use super::contents::IntoReadResult;
use super::extract::{Extract, ExtractError, HandlerInput, HandlerRequirements, Parameters};
use super::handler::Handler;
use super::prompt::{IntoPromptResult, PromptHandler};
use super::resource::{RequestedUri, ResourceHandler};
use super::template::VariableValue;
use crate::exchange::{BoxFuture, Context};

/// The handler for an `async fn` of extractors, with arguments from strings.
pub(super) struct StringArgsHandler<H, E> {
    handler: H,
    /// The arguments whose schema does not allow a string, such as numbers and booleans.
    non_strings: BTreeSet<String>,
    parameters: PhantomData<fn(E)>,
}

impl<H, E: Parameters> StringArgsHandler<H, E> {
    pub(super) fn new(handler: H, requirements: &HandlerRequirements) -> Self {
        let non_strings = properties(requirements)
            .into_iter()
            .filter(|(_, schema)| !allows_type(schema, "string"))
            .map(|(name, _)| name)
            .collect();
        Self {
            handler,
            non_strings,
            parameters: PhantomData,
        }
    }

    fn extract(
        &self,
        texts: impl Iterator<Item = (String, VariableValue)>,
        cx: Context,
    ) -> Result<E, RpcError> {
        let arguments: Map<String, Value> = texts
            .map(|(name, text)| {
                let value = self.to_json(&name, text);
                (name, value)
            })
            .collect();
        let input = HandlerInput::new(Json::from(Value::Object(arguments)), cx);
        E::extract(&input).map_err(|error| match error {
            ExtractError::Arguments(why) => {
                let why = format!("invalid arguments: {why}");
                RpcError::new(ErrorCode::INVALID_PARAMS, why)
            }
            ExtractError::Server(why) => {
                tracing::error!(why, "failed to extract a parameter of a handler");
                let why = "the server lacks a value that this handler requires";
                RpcError::new(ErrorCode::INTERNAL_ERROR, why)
            }
        })
    }

    /// Returns an argument as JSON: parsed if its schema does not allow a string, unchanged if that fails.
    fn to_json(&self, name: &str, text: VariableValue) -> Value {
        match text {
            VariableValue::List(texts) => texts.into(),
            VariableValue::Text(text) if self.non_strings.contains(name) => {
                serde_json::from_str(&text).unwrap_or(Value::String(text))
            }
            VariableValue::Text(text) => text.into(),
        }
    }
}

impl<H, E> PromptHandler for StringArgsHandler<H, E>
where
    H: Handler<E, Output: IntoPromptResult, Future: Send>,
    E: Parameters,
{
    fn render<'a>(
        &'a self,
        arguments: std::collections::BTreeMap<String, String>,
        cx: Context,
    ) -> BoxFuture<'a, Result<GetPromptResult, RpcError>> {
        Box::pin(async move {
            let texts = arguments.into_iter();
            let texts = texts.map(|(name, text)| (name, VariableValue::Text(text)));
            let parameters = self.extract(texts, cx)?;
            self.handler.run(parameters).await.into_prompt_result()
        })
    }
}

impl<H, E> ResourceHandler for StringArgsHandler<H, E>
where
    H: Handler<E, Output: IntoReadResult, Future: Send>,
    E: Parameters,
{
    fn read<'a>(
        &'a self,
        requested: RequestedUri,
        mut cx: Context,
    ) -> BoxFuture<'a, Result<ReadResourceResult, RpcError>> {
        Box::pin(async move {
            let uri = requested.uri.clone();
            let variables = requested.variables.iter();
            let variables: Vec<_> = variables
                .map(|(name, value)| (name.to_owned(), value.clone()))
                .collect();
            cx.extensions_mut().insert(requested);
            let parameters = self.extract(variables.into_iter(), cx)?;
            self.handler.run(parameters).await.into_read_result(&uri)
        })
    }
}

impl<H, E> CompletionHandler for StringArgsHandler<H, E>
where
    H: Handler<E, Output: IntoCompletion, Future: Send>,
    E: Parameters,
{
    fn complete<'a>(
        &'a self,
        input: CompletionInput,
        mut cx: Context,
    ) -> BoxFuture<'a, Result<Completion, RpcError>> {
        Box::pin(async move {
            let texts = input.arguments.clone().into_iter();
            let texts = texts.map(|(name, text)| (name, VariableValue::Text(text)));
            cx.extensions_mut().insert(input);
            let parameters = self.extract(texts, cx)?;
            self.handler.run(parameters).await.into_completion()
        })
    }
}

/// Available in completers only.
impl Extract for CompletionInput {
    fn extract(input: &HandlerInput) -> Result<Self, ExtractError> {
        let typed = input.context().extensions().get::<Self>();
        typed.cloned().ok_or_else(|| {
            ExtractError::server("`CompletionInput` is available in completers only")
        })
    }
}

/// Available in resource handlers only.
impl Extract for RequestedUri {
    fn extract(input: &HandlerInput) -> Result<Self, ExtractError> {
        let requested = input.context().extensions().get::<Self>();
        requested.cloned().ok_or_else(|| {
            ExtractError::server("`RequestedUri` is available in resource handlers only")
        })
    }
}

/// Returns the arguments of a prompt, required ones first.
pub(super) fn prompt_arguments(requirements: &HandlerRequirements) -> Vec<PromptArgument> {
    let schema = input_schema(requirements);
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let mut arguments: Vec<_> = properties(requirements)
        .into_iter()
        .map(|(name, schema)| {
            let mut argument = PromptArgument::new(&name);
            let description = schema.get("description").and_then(Value::as_str);
            argument.description = description.map(str::to_owned);
            argument.required = Some(required.contains(&name.as_str()));
            argument
        })
        .collect();
    arguments.sort_by_key(|argument| argument.required == Some(false));
    arguments
}

fn properties(requirements: &HandlerRequirements) -> Map<String, Value> {
    match input_schema(requirements)
        .get_mut("properties")
        .map(Value::take)
    {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    }
}

fn input_schema(requirements: &HandlerRequirements) -> Value {
    requirements
        .input_schema()
        .and_then(|schema| schema.decode().ok())
        .unwrap_or_default()
}

fn allows_type(schema: &Value, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(several)) => several.iter().any(|one| one == kind),
        _ => true,
    }
}
