//! The return types of tool handlers, and their conversion into a [`CallToolResult`].

use std::borrow::Cow;

use bowline_types::{
    AudioContent, CallToolResult, ContentBlock, EmbeddedResource, ErrorCode, ImageContent, Json,
    ResourceLink, RpcError, TextContent,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::schema;
use super::tool_error::ToolError;

/// A return type of a tool handler.
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
    label = "cannot be converted into a `CallToolResult`",
    note = "a tool returns text, a number, `Structured<T>`, content blocks, a `CallToolResult`, or a `Result` \
            of one of these with any error type that `ToolError` can be made from",
    note = "return any other type as `Structured(value)`; it derives `serde::Serialize` and \
            `bowline::schemars::JsonSchema`",
    note = "if this is the future of an `async fn`, use `Tool::new` in place of `Tool::blocking`"
)]
pub trait IntoToolResult {
    /// Converts it into the result of `tools/call`.
    ///
    /// # Errors
    ///
    /// If the call fails with a JSON-RPC error, which the model does not see.
    fn into_tool_result(self) -> Result<CallToolResult, RpcError>;

    /// Returns the schema of its structured output, if it has any. If the schema allows values that are not objects,
    /// callers of protocol versions until 2025-11-25 get the output as the member `result` of an object.
    #[must_use]
    fn output_schema() -> Option<Json> {
        None
    }
}

/// Typed output: `structuredContent` with the schema of `T`, and the same JSON as text content.
///
/// For callers of protocol versions until 2025-11-25, a value that is not an object becomes the member `result` of
/// one.
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
#[allow(clippy::exhaustive_structs, reason = "handlers construct it")]
pub struct Structured<T>(pub T);

// Otherwise the compiler reports a missing `JsonSchema` without the notes of `IntoToolResult`.
#[diagnostic::do_not_recommend]
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

impl<T: IntoToolResult, E: Into<ToolError>> IntoToolResult for Result<T, E> {
    fn into_tool_result(self) -> Result<CallToolResult, RpcError> {
        match self {
            Ok(output) => output.into_tool_result(),
            Err(error) => error.into().into_tool_result(),
        }
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

/// A result without content.
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

/// Wraps structured output in an object, as the member `result`: until 2025-11-25 only objects are allowed.
pub(super) fn wrap(result: &mut CallToolResult) -> Result<(), RpcError> {
    #[derive(Serialize)]
    struct ResultObject {
        result: Json,
    }

    if let Some(value) = result.structured_content.take() {
        let wrapped = ResultObject { result: value };
        result.structured_content = Some(Json::encode(&wrapped).map_err(serialize_failed)?);
    }
    Ok(())
}

/// Returns the value as structured output and as text.
fn structured(value: &impl Serialize) -> Result<CallToolResult, RpcError> {
    let value = Json::encode(value).map_err(serialize_failed)?;
    let mut result = CallToolResult::text(value.as_str());
    result.structured_content = Some(value);
    Ok(result)
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "the signature that `map_err` requires"
)]
fn serialize_failed(error: serde_json::Error) -> RpcError {
    tracing::error!(%error, "failed to serialize the output of a tool");
    RpcError::new(ErrorCode::INTERNAL_ERROR, "failed to serialize the output")
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
}
