//! What a tool may return, and how it becomes the result that a model reads.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;

use bowline_types::{
    AudioContent, CallToolResult, ContentBlock, EmbeddedResource, ErrorCode, ImageContent, Json,
    ResourceLink, RpcError, TextContent,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::schema;
use crate::exchange::{AskError, InsufficientScope};

/// Something that a tool may return.
///
/// # Examples
///
/// ```
/// use bowline::{CallToolResult, IntoToolResult, RpcError, Tool};
///
/// struct Percent(f64);
///
/// impl IntoToolResult for Percent {
///     fn into_tool_result(self) -> Result<CallToolResult, RpcError> {
///         Ok(CallToolResult::text(format!("{:.1} %", self.0 * 100.0)))
///     }
/// }
///
/// let tool = Tool::new("done", async || Percent(0.25));
/// ```
#[diagnostic::on_unimplemented(
    message = "a tool cannot return `{Self}`",
    label = "has no form as the result of a tool",
    note = "a tool returns text, a number, `Structured<T>`, content blocks, a `CallToolResult`, or a `Result` \
            of one of these whose error is `ToolError` or `RpcError`",
    note = "a type of your own that derives `Serialize` and `JsonSchema` is returned as `Structured(value)`"
)]
pub trait IntoToolResult {
    /// Turns it into the result.
    ///
    /// # Errors
    ///
    /// If the call failed in a way that the model is not told about.
    fn into_tool_result(self) -> Result<CallToolResult, RpcError>;

    /// The schema of its structured output, if it has any. If that may be something else than an object,
    /// the tool wraps both for callers until 2025-11-25: the output becomes the member `result` of an object.
    #[must_use]
    fn output_schema() -> Option<Json> {
        None
    }
}

/// Typed output: `T` as JSON, with the schema of `T`, and the same once more as text.
///
/// What is no object, such as a list, is wrapped into one, as its only member `result`, for callers until 2025-11-25.
///
/// # Examples
///
/// ```
/// use bowline::{Structured, Tool};
/// use bowline::schemars::{self, JsonSchema};
/// use serde::Serialize;
///
/// #[derive(Serialize, JsonSchema)]
/// struct Weather {
///     celsius: f64,
/// }
///
/// async fn weather() -> Structured<Weather> {
///     Structured(Weather { celsius: 21.5 })
/// }
///
/// let tool = Tool::new("weather", weather);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "handlers make it")]
pub struct Structured<T>(pub T);

impl<T: Serialize + JsonSchema> IntoToolResult for Structured<T> {
    fn into_tool_result(self) -> Result<CallToolResult, RpcError> {
        structured(&self.0)
    }

    fn output_schema() -> Option<Json> {
        Some(schema::of_output::<T>())
    }
}

/// JSON without a schema.
impl IntoToolResult for Json {
    fn into_tool_result(self) -> Result<CallToolResult, RpcError> {
        structured(&self)
    }
}

/// JSON without a schema.
impl IntoToolResult for serde_json::Value {
    fn into_tool_result(self) -> Result<CallToolResult, RpcError> {
        Json::from(self).into_tool_result()
    }
}

/// A failure that the model is told about, so that it can do better.
///
/// Every error turns into one by `?`.
///
/// # Examples
///
/// ```
/// use bowline::ToolError;
///
/// async fn parse(number: String) -> Result<i64, ToolError> {
///     if number.is_empty() {
///         return Err(ToolError::new("there is nothing to parse"));
///     }
///     Ok(number.parse()?)
/// }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ToolError {
    content: Vec<ContentBlock>,
    /// What the client is told instead, because no model can do anything about it.
    for_the_client: Option<RpcError>,
}

impl ToolError {
    /// Says what went wrong, and best of all what to do instead.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            content: vec![ContentBlock::text(text)],
            for_the_client: None,
        }
    }

    /// Adds to what it says.
    #[must_use]
    pub fn with_content(mut self, block: impl Into<ContentBlock>) -> Self {
        self.content.push(block.into());
        self
    }

    fn into_result(self) -> Result<CallToolResult, RpcError> {
        if let Some(error) = self.for_the_client {
            return Err(error);
        }
        let mut result = CallToolResult::new(self.content);
        result.is_error = Some(true);
        Ok(result)
    }
}

/// Says the error and what caused it. That the client cannot be asked something, or that its credential
/// allows too little, is told to the client and not to the model.
impl<E: std::error::Error + 'static> From<E> for ToolError {
    fn from(error: E) -> Self {
        let any = &error as &dyn Any;
        let asked = any.downcast_ref::<AskError>();
        let lacking = asked
            .filter(|asked| matches!(asked, AskError::Missing(_) | AskError::Unsupported { .. }));
        let too_little = any.downcast_ref::<InsufficientScope>().cloned();
        let for_the_client = lacking
            .map(AskError::to_rpc_error)
            .or_else(|| too_little.map(RpcError::from));
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        Self {
            for_the_client,
            ..Self::new(text)
        }
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut texts = self.content.iter().filter_map(ContentBlock::as_text);
        f.write_str(texts.next().unwrap_or_default())?;
        texts.try_for_each(|text| write!(f, "\n{text}"))
    }
}

impl<T: IntoToolResult> IntoToolResult for Result<T, ToolError> {
    fn into_tool_result(self) -> Result<CallToolResult, RpcError> {
        match self {
            Ok(output) => output.into_tool_result(),
            Err(error) => error.into_result(),
        }
    }

    fn output_schema() -> Option<Json> {
        T::output_schema()
    }
}

impl<T: IntoToolResult> IntoToolResult for Result<T, RpcError> {
    fn into_tool_result(self) -> Result<CallToolResult, RpcError> {
        self.and_then(T::into_tool_result)
    }

    fn output_schema() -> Option<Json> {
        T::output_schema()
    }
}

impl IntoToolResult for CallToolResult {
    fn into_tool_result(self) -> Result<CallToolResult, RpcError> {
        Ok(self)
    }
}

/// Done, and nothing to say about it.
impl IntoToolResult for () {
    fn into_tool_result(self) -> Result<CallToolResult, RpcError> {
        Ok(CallToolResult::default())
    }
}

impl IntoToolResult for Vec<ContentBlock> {
    fn into_tool_result(self) -> Result<CallToolResult, RpcError> {
        Ok(CallToolResult::new(self))
    }
}

macro_rules! texts {
    ($($text:ty)*) => {$(
        impl IntoToolResult for $text {
            fn into_tool_result(self) -> Result<CallToolResult, RpcError> {
                Ok(CallToolResult::text(self))
            }
        }
    )*};
}

texts!(String &'static str Cow<'static, str> char);

macro_rules! blocks {
    ($($block:ty)*) => {$(
        impl IntoToolResult for $block {
            fn into_tool_result(self) -> Result<CallToolResult, RpcError> {
                Ok(CallToolResult::new(vec![self.into()]))
            }
        }
    )*};
}

blocks!(ContentBlock TextContent ImageContent AudioContent ResourceLink EmbeddedResource);

macro_rules! plain_values {
    ($($value:ty)*) => {$(
        impl IntoToolResult for $value {
            fn into_tool_result(self) -> Result<CallToolResult, RpcError> {
                structured(&self)
            }

            fn output_schema() -> Option<Json> {
                Some(schema::of_output::<Self>())
            }
        }
    )*};
}

plain_values!(bool f32 f64 i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize);

/// Makes structured output the member `result` of an object: until 2025-11-25 it had to be one.
pub(super) fn wrap(result: &mut CallToolResult) -> Result<(), RpcError> {
    #[derive(Serialize)]
    struct Wrapped {
        result: Json,
    }

    if let Some(value) = result.structured_content.take() {
        let wrapped = Wrapped { result: value };
        result.structured_content = Some(Json::encode(&wrapped).map_err(no_json_form)?);
    }
    Ok(())
}

/// The value as structured output, and once more as text.
fn structured(value: &impl Serialize) -> Result<CallToolResult, RpcError> {
    let value = Json::encode(value).map_err(no_json_form)?;
    let mut result = CallToolResult::text(value.as_str());
    result.structured_content = Some(value);
    Ok(result)
}

#[allow(clippy::needless_pass_by_value, reason = "it is made for `map_err`")]
fn no_json_form(error: serde_json::Error) -> RpcError {
    tracing::error!(%error, "the output of a tool has no JSON form");
    RpcError::new(ErrorCode::INTERNAL_ERROR, "the output has no JSON form")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn written(output: impl IntoToolResult) -> serde_json::Value {
        serde_json::to_value(output.into_tool_result().unwrap()).unwrap()
    }

    #[test]
    fn a_number_is_text_for_the_model_and_a_value_for_the_program() {
        assert_eq!(
            written(42_i64),
            json!({
                "content": [{"type": "text", "text": "42"}],
                "structuredContent": 42,
            })
        );
    }

    #[test]
    fn an_object_is_not_wrapped_and_text_has_no_structure() {
        assert_eq!(
            written(Structured(std::collections::BTreeMap::from([("a", 1)]))),
            json!({
                "content": [{"type": "text", "text": "{\"a\":1}"}],
                "structuredContent": {"a": 1},
            })
        );
        assert_eq!(
            written("hi"),
            json!({"content": [{"type": "text", "text": "hi"}]})
        );
        assert_eq!(written(()), json!({"content": []}));
    }

    #[test]
    fn an_error_that_became_a_tool_error_tells_the_model_its_causes() {
        fn failing() -> Result<i64, ToolError> {
            Err(crate::Error::Transport {
                what: "the line is dead".into(),
                source: Some("somebody tripped".into()),
            })?
        }

        assert_eq!(
            written(failing()),
            json!({
                "content": [{"type": "text", "text": "the wire failed: the line is dead: somebody tripped"}],
                "isError": true,
            })
        );
    }

    #[test]
    fn the_client_and_not_the_model_is_told_what_the_client_lacks() {
        fn asking() -> Result<i64, ToolError> {
            let (what, version) = ("roots/list", "1999");
            Err(AskError::Unsupported { what, version })?
        }

        let error = asking().into_tool_result().unwrap_err();

        assert_eq!(error.code, ErrorCode::MISSING_CLIENT_CAPABILITY);
        assert!(written(Err::<(), ToolError>(AskError::Declined.into()))["isError"] == true);
    }

    #[test]
    fn the_client_and_not_the_model_is_told_what_its_credential_lacks() {
        fn deleting() -> Result<(), ToolError> {
            let nobody = crate::exchange::Principal::anonymous();
            Ok(InsufficientScope::check(["files:write"], &nobody)?)
        }

        let error = deleting().into_tool_result().unwrap_err();

        assert_eq!(
            InsufficientScope::read(&error),
            Some(InsufficientScope::new(["files:write"]))
        );
    }

    #[test]
    fn an_rpc_error_is_not_told_to_the_model() {
        let refused = RpcError::new(ErrorCode::INVALID_PARAMS, "no");

        let result = Err::<i64, _>(refused.clone()).into_tool_result();

        assert_eq!(result, Err(refused));
    }
}
