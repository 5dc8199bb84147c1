//! Functions behind prompts and resources, whose arguments arrive as text.

use std::collections::BTreeSet;
use std::marker::PhantomData;

use bowline_types::{
    ErrorCode, GetPromptResult, Json, PromptArgument, ReadResourceResult, RpcError,
};
use serde_json::{Map, Value};

use super::contents::IntoReadResult;
use super::extract::{Extract, ExtractError, Given, Needs, Parameters};
use super::handler::Handler;
use super::prompt::{IntoPromptResult, PromptHandler};
use super::resource::{AskedUri, ResourceHandler};
use super::template::Value as Variable;
use crate::exchange::{BoxFuture, Context};

/// An `async fn` of extractors whose arguments are texts.
pub(super) struct OfTexts<H, E> {
    handler: H,
    /// The arguments that are not text for the function, but a number or a truth value.
    not_text: BTreeSet<String>,
    parameters: PhantomData<fn(E)>,
}

impl<H, E: Parameters> OfTexts<H, E> {
    pub(super) fn new(handler: H, needs: &Needs) -> Self {
        let not_text = properties(needs)
            .into_iter()
            .filter(|(_, schema)| !may_be(schema, "string"))
            .map(|(name, _)| name)
            .collect();
        Self {
            handler,
            not_text,
            parameters: PhantomData,
        }
    }

    fn extract(
        &self,
        texts: impl Iterator<Item = (String, Variable)>,
        cx: Context,
    ) -> Result<E, RpcError> {
        let arguments: Map<String, Value> = texts
            .map(|(name, text)| {
                let value = self.read(&name, text);
                (name, value)
            })
            .collect();
        let given = Given::new(Json::from(Value::Object(arguments)), cx);
        E::extract(&given).map_err(|error| match error {
            ExtractError::Arguments(why) => {
                let why = format!("the arguments do not fit: {why}");
                RpcError::new(ErrorCode::INVALID_PARAMS, why)
            }
            ExtractError::Server(why) => {
                tracing::error!(why, "a handler could not be given what it asks for");
                let why = "the server is not set up for this";
                RpcError::new(ErrorCode::INTERNAL_ERROR, why)
            }
        })
    }

    /// The argument in the form that the function expects, if its text can be read so.
    fn read(&self, name: &str, text: Variable) -> Value {
        match text {
            Variable::List(texts) => texts.into(),
            Variable::Text(text) if self.not_text.contains(name) => {
                serde_json::from_str(&text).unwrap_or(Value::String(text))
            }
            Variable::Text(text) => text.into(),
        }
    }
}

impl<H, E> PromptHandler for OfTexts<H, E>
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
            let texts = texts.map(|(name, text)| (name, Variable::Text(text)));
            let parameters = self.extract(texts, cx)?;
            self.handler.run(parameters).await.into_prompt_result()
        })
    }
}

impl<H, E> ResourceHandler for OfTexts<H, E>
where
    H: Handler<E, Output: IntoReadResult, Future: Send>,
    E: Parameters,
{
    fn read<'a>(
        &'a self,
        asked: AskedUri,
        mut cx: Context,
    ) -> BoxFuture<'a, Result<ReadResourceResult, RpcError>> {
        Box::pin(async move {
            let uri = asked.uri.clone();
            let variables = asked.variables.iter();
            let variables: Vec<_> = variables
                .map(|(name, value)| (name.to_owned(), value.clone()))
                .collect();
            cx.extensions_mut().insert(asked);
            let parameters = self.extract(variables.into_iter(), cx)?;
            self.handler.run(parameters).await.into_read_result(&uri)
        })
    }
}

/// What is to be read, in the handler of a resource.
impl Extract for AskedUri {
    fn extract(given: &Given) -> Result<Self, ExtractError> {
        let asked = given.context().extensions().find::<Self>();
        asked.cloned().ok_or_else(|| {
            ExtractError::server("`AskedUri` is given to the handlers of resources only")
        })
    }
}

/// The arguments of a prompt, those that are required first.
pub(super) fn prompt_arguments(needs: &Needs) -> Vec<PromptArgument> {
    let schema = input_schema(needs);
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let mut arguments: Vec<_> = properties(needs)
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

fn properties(needs: &Needs) -> Map<String, Value> {
    match input_schema(needs).get_mut("properties").map(Value::take) {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    }
}

fn input_schema(needs: &Needs) -> Value {
    needs
        .input_schema()
        .and_then(|schema| schema.decode().ok())
        .unwrap_or_default()
}

fn may_be(schema: &Value, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(several)) => several.iter().any(|one| one == kind),
        _ => true,
    }
}
