//! [`ToolError`], the error that `?` makes of any other in a handler.

use std::error::Error;
use std::fmt;

use bowline_types::{CallToolResult, ContentBlock, RpcError};

use crate::exchange::{InputError, InsufficientScope};

/// The failure of a handler.
///
/// `?` makes one of every error, of a text, and of `anyhow::Error`. A tool that fails with it returns a result with
/// `isError`, which the model sees and can react to. Other handlers fail with a JSON-RPC error: `-32603` and the text,
/// unless the error has its own code.
///
/// An [`RpcError`] stays what it is, in tools too: the request fails with its code, and the model does not see it.
/// Inside an `anyhow::Error` it cannot be recognized, and becomes text like any other error.
///
/// # Examples
///
/// ```
/// use bowline::ToolError;
///
/// async fn parse(number: String) -> Result<i64, ToolError> {
///     if number.is_empty() {
///         return Err("`number` is empty".into());
///     }
///     Ok(number.parse()?)
/// }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ToolError {
    /// The content of a tool's result with `isError`.
    content: Vec<ContentBlock>,
    /// The JSON-RPC error of handlers other than tools; `None` for `-32603` and the text.
    rpc_error: Option<RpcError>,
    /// Whether a tool sends `rpc_error` instead of a result with `content`, because the model cannot correct the call.
    is_for_client: bool,
}

impl ToolError {
    /// Creates an error with a text for the model, which should say how to correct the call.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            content: vec![ContentBlock::text(text)],
            rpc_error: None,
            is_for_client: false,
        }
    }

    /// Adds a content block.
    #[must_use]
    pub fn with_content(mut self, block: impl Into<ContentBlock>) -> Self {
        self.content.push(block.into());
        self
    }

    /// Returns the failure as the result of a tool.
    pub(super) fn into_tool_result(self) -> Result<CallToolResult, RpcError> {
        if let Some(error) = self.rpc_error.filter(|_| self.is_for_client) {
            return Err(error);
        }
        let mut result = CallToolResult::new(self.content);
        result.is_error = Some(true);
        Ok(result)
    }
}

/// The text is the error and its causes. An [`RpcError`], a missing client capability and an insufficient scope are
/// reported to the client as JSON-RPC errors.
impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for ToolError {
    fn from(error: E) -> Self {
        let error = error.into();
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        let (rpc_error, is_for_client) = as_rpc_error(&*error).unzip();
        Self {
            rpc_error,
            is_for_client: is_for_client.unwrap_or_default(),
            ..Self::new(text)
        }
    }
}

/// Returns the JSON-RPC error that corresponds to `error`, and whether the client gets it even from a tool.
fn as_rpc_error(error: &(dyn Error + Send + Sync + 'static)) -> Option<(RpcError, bool)> {
    if let Some(error) = error.downcast_ref::<RpcError>() {
        return Some((error.clone(), true));
    }
    if let Some(missing) = error.downcast_ref::<InsufficientScope>() {
        return Some((missing.clone().into(), true));
    }
    let error = error.downcast_ref::<InputError>()?;
    let is_missing = matches!(
        error,
        InputError::Missing(_) | InputError::Unsupported { .. }
    );
    Some((error.to_rpc_error(), is_missing))
}

/// Outside of tools there is no `isError`: a text becomes the message of a `-32603`.
impl From<ToolError> for RpcError {
    fn from(error: ToolError) -> Self {
        match error.rpc_error {
            Some(error) => error,
            None => Self::internal(error),
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

#[cfg(test)]
mod tests {
    use std::io;

    use bowline_core::input::{InputKind, RawInputRequest};
    use bowline_types::{ClientCapabilities, ErrorCode};

    use super::*;

    fn failed<E: Into<ToolError>>(error: E) -> Result<CallToolResult, RpcError> {
        error.into().into_tool_result()
    }

    #[test]
    fn errors_texts_and_boxes_become_results_with_the_text_and_its_causes() {
        /// Like `anyhow::Error`, it is no `Error` itself but converts into a box.
        struct Report(&'static str);

        impl From<Report> for Box<dyn Error + Send + Sync> {
            fn from(report: Report) -> Self {
                report.0.into()
            }
        }

        let boxed: Box<dyn Error + Send + Sync> = "boxed".into();
        let caused = crate::Error::Transport {
            what: "failed to connect".into(),
            source: Some(io::Error::other("refused").into()),
        };
        for (result, text) in [
            (failed(io::Error::other("no disk")), "no disk"),
            (failed("plain"), "plain"),
            (failed("owned".to_owned()), "owned"),
            (failed(boxed), "boxed"),
            (failed(Report("reported")), "reported"),
            (failed(caused), "failed to connect: refused"),
        ] {
            let result = result.unwrap();
            assert_eq!(result.is_error, Some(true));
            assert_eq!(result.content, [ContentBlock::text(text)]);
        }
    }

    #[test]
    fn an_rpc_error_keeps_its_code_in_and_outside_of_tools() {
        let error = RpcError::invalid_params("no such row");

        let in_tool = failed(error.clone()).unwrap_err();
        let elsewhere = RpcError::from(ToolError::from(error));

        assert_eq!(in_tool.code, ErrorCode::INVALID_PARAMS);
        assert_eq!(elsewhere, in_tool);
    }

    #[test]
    fn any_other_error_is_an_internal_error_outside_of_tools() {
        let error = RpcError::from(ToolError::from(io::Error::other("no disk")));

        assert_eq!(error, RpcError::internal("no disk"));
    }

    #[test]
    fn a_missing_client_capability_is_an_rpc_error() {
        let (what, version) = ("roots/list", "1999");
        let roots = RawInputRequest::new(InputKind::Roots, None);
        let undeclared = roots.check_capabilities(&ClientCapabilities::default());
        for missing in [
            InputError::Unsupported { what, version },
            InputError::Missing(undeclared.unwrap_err()),
        ] {
            let error = failed(missing).unwrap_err();
            assert_eq!(error.code, ErrorCode::MISSING_CLIENT_CAPABILITY);
        }
    }

    #[test]
    fn declined_input_is_a_result_in_tools_and_keeps_its_code_elsewhere() {
        let declined = failed(InputError::Declined).unwrap();
        assert_eq!(declined.is_error, Some(true));
        let elsewhere = RpcError::from(ToolError::from(InputError::Declined));
        assert_eq!(elsewhere, InputError::Declined.to_rpc_error());
    }

    #[test]
    fn an_insufficient_scope_is_an_rpc_error() {
        let anonymous = crate::exchange::Principal::anonymous();
        let refused = InsufficientScope::check(["files:write"], &anonymous).unwrap_err();

        let error = failed(refused).unwrap_err();

        let scopes = InsufficientScope::read(&error);
        assert_eq!(scopes, Some(InsufficientScope::new(["files:write"])));
    }
}
